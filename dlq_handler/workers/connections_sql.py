"""The connections that leaders found on workers' queues.

A replica in shadow mode has rows of its own, because it makes its own checks.
"""

from collections.abc import Collection, Iterable

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.workers.worker_process import KnownConnection

_MOMENTS = (
    "checked_at",
    "observed_at",
    "absent_at",
    "found_at",
    "missing_since",
    "shared_from",
    "shared_since",
    "shared_until",
)


async def read_connections(
    tx: Transaction, worker_ids: Iterable[int], *, is_shadow: bool
) -> dict[int, KnownConnection]:
    """A worker that is missing from the answer was never checked."""
    rows = await tx.rows(
        """
        SELECT worker_id, checked_at, observed_at, connection, absent_at, found_at, missing_since,
               shared_from, shared_since, shared_until
          FROM own.worker_connection WHERE worker_id = ANY (CAST(:ids AS bigint[])) AND is_shadow = :is_shadow
        """,
        ids=sorted(set(worker_ids)),
        is_shadow=is_shadow,
    )
    return {row.worker_id: KnownConnection(**row._asdict()) for row in rows}


async def keep_connections(
    tx: Transaction, connections: Collection[KnownConnection], *, is_shadow: bool
) -> None:
    if not connections:
        return
    ordered = sorted(connections, key=lambda known: known.worker_id)
    await tx.run(
        """
        INSERT INTO own.worker_connection (worker_id, connection, checked_at, observed_at, absent_at, found_at,
                                           missing_since, shared_from, shared_since, shared_until, is_shadow)
        SELECT given.*, CAST(:is_shadow AS boolean)
          FROM unnest(CAST(:ids AS bigint[]), CAST(:connections AS text[]), CAST(:checked_at AS timestamptz[]),
                      CAST(:observed_at AS timestamptz[]), CAST(:absent_at AS timestamptz[]),
                      CAST(:found_at AS timestamptz[]), CAST(:missing_since AS timestamptz[]),
                      CAST(:shared_from AS timestamptz[]), CAST(:shared_since AS timestamptz[]),
                      CAST(:shared_until AS timestamptz[])) AS given
        ON CONFLICT (worker_id, is_shadow) DO UPDATE
           SET connection = excluded.connection, checked_at = excluded.checked_at, observed_at = excluded.observed_at,
               absent_at = excluded.absent_at, found_at = excluded.found_at, missing_since = excluded.missing_since,
               shared_from = excluded.shared_from, shared_since = excluded.shared_since,
               shared_until = excluded.shared_until
        """,
        ids=[known.worker_id for known in ordered],
        connections=[known.connection for known in ordered],
        is_shadow=is_shadow,
        **{moment: [getattr(known, moment) for known in ordered] for moment in _MOMENTS},
    )


async def delete_old_connections(database: Database, *, older_than_seconds: float) -> int:
    """Of workers that have run nothing for long. Returns their number."""
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.worker_connection WHERE checked_at < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount
