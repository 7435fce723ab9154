"""A group with as many kept letters as a test wants, made in one statement."""

from dlq_handler.database.engine import Database

KEPT_GROUP = "0123456789"


async def a_kept_group(store: Database, letters: int) -> None:
    """Unrelated letters, decided one after the other within the last hour, and none of them put up."""
    async with store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO own.letter (key, execution_id, reason, exchange, routing_key, body, body_size, outcome,
                                    explanation, received_at, decided_at, replica, group_id)
            SELECT 'kept-' || n, n, 'rejected', '', '', '', 0, 'unrelated', '', at, at, '', :group_id
              FROM generate_series(1, :letters) AS n,
                   LATERAL (SELECT now() - interval '1 hour' + make_interval(secs => n * 1e-3) AS at) AS decided
            """,
            group_id=KEPT_GROUP,
            letters=letters,
        )
        await tx.run(
            """
            INSERT INTO own.letter_group
            VALUES (:group_id, 'unrelated', 'rejected', 'q', 'Odd', NULL, now(), now(), :letters, 0, '{}')
            """,
            group_id=KEPT_GROUP,
            letters=letters,
        )
        await tx.run("ANALYZE own.letter")
