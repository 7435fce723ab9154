"""What the leaders saw of workers, for the looks that follow. Those who only watch have looks of their own."""

from collections.abc import Collection, Iterable

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.workers.worker_observation import WorkerObservation


async def read_observations(
    tx: Transaction, worker_ids: Iterable[int], *, is_shadow: bool
) -> dict[int, WorkerObservation]:
    """An id that is missing from the answer was never looked at."""
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
    tx: Transaction, looks: Collection[WorkerObservation], *, is_shadow: bool
) -> None:
    if not looks:
        return
    ordered = sorted(looks, key=lambda look: look.worker_id)
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
        ids=[look.worker_id for look in ordered],
        heartbeats=[look.last_heartbeat for look in ordered],
        unavailable=[look.unavailable_since for look in ordered],
        empty=[look.empty_since for look in ordered],
        unattended=[look.unconsumed_since for look in ordered],
        observed_at=[look.observed_at for look in ordered],
        is_shadow=is_shadow,
    )


async def delete_observations(database: Database, *, older_than_seconds: float) -> int:
    """Forget workers that nobody has had to look at for long: ids of gone workers never come back."""
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.worker_observation WHERE observed_at < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount
