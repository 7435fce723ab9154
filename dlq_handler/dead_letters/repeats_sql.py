"""Count dead letters by group and by minute, with the requests that were rejected again."""

from collections.abc import Mapping, Sequence

from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.group import group_id_of
from dlq_handler.dead_letters.groups_sql import count_letters
from dlq_handler.dead_letters.record import Entry
from dlq_handler.host.worker import WorkerQueueNames

REJECTED_REQUEST = "routing_key = 'execution.requested' AND reason = 'rejected' AND NOT is_shadow"
"""The words of the index of rejected requests."""


async def count_arrivals(
    tx: Transaction, recorded: Sequence[Entry], repeats: Mapping[str, int], *, names: WorkerQueueNames
) -> None:
    """`recorded`: entries that this transaction has recorded. `repeats`: arrivals by key of those on record before."""
    has_requests = bool(repeats) and await _lock_groups(tx, repeats, recorded)
    await count_letters(tx, recorded, names=names)
    if has_requests:
        await _count_repeats(tx, repeats)


async def _lock_groups(tx: Transaction, repeats: Mapping[str, int], entries: Sequence[Entry]) -> bool:
    """Lock all groups that `count_letters` and `_count_repeats` change, in one order. Returns False when none
    of the repeats is a rejected request.
    """
    rows = await tx.rows(
        f"""
        WITH repeated AS MATERIALIZED (
            SELECT DISTINCT group_id FROM own.letter WHERE key = ANY (CAST(:keys AS text[])) AND {REJECTED_REQUEST})
        SELECT id FROM own.letter_group
         WHERE EXISTS (SELECT FROM repeated)
           AND (id IN (SELECT group_id FROM repeated) OR id = ANY (CAST(:ids AS text[])))
         ORDER BY id FOR NO KEY UPDATE
        """,  # noqa: S608  # our own text
        keys=list(repeats),
        ids=sorted({group_id_of(entry) for entry in entries}),
    )
    return bool(rows)


async def _count_repeats(tx: Transaction, repeats: Mapping[str, int]) -> None:
    """Count requests that were rejected again: each execution has one record, and a rejection may go on for days.

    `repeats`: arrivals by key. Other repeats are deliveries of the same message, and are not counted.
    """
    await tx.run(
        f"""
        WITH repeated AS MATERIALIZED (
            SELECT l.group_id AS id, sum(given.arrivals) AS letters
              FROM own.letter l
              JOIN unnest(CAST(:keys AS text[]), CAST(:arrivals AS integer[])) AS given(key, arrivals)
                ON given.key = l.key
             WHERE {REJECTED_REQUEST}
             GROUP BY l.group_id),
        grouped AS (
            UPDATE own.letter_group g SET last_at = greatest(g.last_at, now()), letters = g.letters + repeated.letters
              FROM repeated WHERE g.id = repeated.id
            RETURNING g.id, repeated.letters)
        INSERT INTO own.letter_minute AS known (minute, group_id, letters, failed, last_at, last_id)
        SELECT date_trunc('minute', now()), id, letters, 0, now(), (SELECT max(id) FROM own.letter) FROM grouped
        ON CONFLICT (minute, group_id) DO UPDATE
           SET letters = known.letters + excluded.letters, last_at = greatest(known.last_at, excluded.last_at),
               last_id = greatest(known.last_id, excluded.last_id)
        """,  # noqa: S608  # our own text
        keys=list(repeats),
        arrivals=list(repeats.values()),
    )
