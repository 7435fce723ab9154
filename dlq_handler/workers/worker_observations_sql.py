"""What the leaders observed of workers, for later checks. A leader in shadow mode has observations of its own."""

from collections.abc import Collection, Iterable

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.workers.worker_observation import WorkerObservation


async def read_observations(
    tx: Transaction, worker_ids: Iterable[int], *, is_shadow: bool
) -> dict[int, WorkerObservation]:
    """An id that is missing from the answer was never checked."""
    rows = await tx.rows(
        """
        SELECT worker_id, last_heartbeat, unavailable_since, empty_since, unconsumed_since, observed_at
          FROM own.worker_observation WHERE worker_id = ANY (CAST(:ids AS bigint[])) AND is_shadow = :is_shadow
        """,
        ids=sorted(set(worker_ids)),
        is_shadow=is_shadow,
    )
    return {row.worker_id: WorkerObservation(**row._asdict()) for row in rows}


async def keep_observations(
    tx: Transaction, observations: Collection[WorkerObservation], *, is_shadow: bool
) -> None:
    if not observations:
        return
    ordered = sorted(observations, key=lambda one: one.worker_id)
    await tx.run(
        """
        INSERT INTO own.worker_observation
               (worker_id, last_heartbeat, unavailable_since, empty_since, unconsumed_since, observed_at, is_shadow)
        SELECT given.*, CAST(:is_shadow AS boolean)
          FROM unnest(CAST(:ids AS bigint[]), CAST(:heartbeats AS timestamptz[]),
                      CAST(:unavailable AS timestamptz[]), CAST(:empty AS timestamptz[]),
                      CAST(:unattended AS timestamptz[]), CAST(:observed_at AS timestamptz[])) AS given
        ON CONFLICT (worker_id, is_shadow) DO UPDATE
           SET last_heartbeat = excluded.last_heartbeat, unavailable_since = excluded.unavailable_since,
               empty_since = excluded.empty_since, unconsumed_since = excluded.unconsumed_since,
               observed_at = excluded.observed_at
        """,
        ids=[one.worker_id for one in ordered],
        heartbeats=[one.last_heartbeat for one in ordered],
        unavailable=[one.unavailable_since for one in ordered],
        empty=[one.empty_since for one in ordered],
        unattended=[one.unconsumed_since for one in ordered],
        observed_at=[one.observed_at for one in ordered],
        is_shadow=is_shadow,
    )


async def delete_observations(database: Database, *, older_than_seconds: float) -> int:
    """Delete what is on record of workers without a recent check: ids of deleted workers are never used again."""
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.worker_observation WHERE observed_at < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount
