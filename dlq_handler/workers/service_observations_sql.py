"""What the leaders saw of the queues that the host's services must consume: for commands, pages and the next leader."""

from collections.abc import Collection
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import keep_progress, read_progress
from dlq_handler.database.transaction import Transaction
from dlq_handler.workers.service_observation import ServiceObservation, ServiceObservations

# All queues are checked together, so one time is enough for them.
_PROGRESS = "service observations"


async def read_eventful(database: Database) -> ServiceObservations:
    """Those that say more than "it has a consumer": a few rows, however many workers there are."""
    async with database.transaction() as tx:
        own = await tx.row("SELECT to_regclass('own.service_observation') IS NOT NULL AS is_there")
        if own is None or not own.is_there:
            # Commands run before the first start, too, and before an update of the tables.
            return ServiceObservations(observed_at=None, by_queue={})
        return await _read(tx, "WHERE unconsumed_since IS NOT NULL OR inactive_heartbeat IS NOT NULL")


async def read_all(tx: Transaction) -> ServiceObservations:
    return await _read(tx, "")


async def _read(tx: Transaction, condition: str) -> ServiceObservations:
    rows = await tx.rows(
        f"""
        SELECT queue, unconsumed_since, consumed_at, restarted_at, connection_lost_at, first_heartbeat,
               inactive_heartbeat
          FROM own.service_observation {condition}
        """  # noqa: S608  # only text of this module
    )
    return ServiceObservations(
        observed_at=await read_progress(tx, _PROGRESS),
        by_queue={row.queue: ServiceObservation(**row._asdict()) for row in rows},
    )


async def keep_observations(
    tx: Transaction, *, changed: Collection[ServiceObservation], removed: Collection[str], at: datetime
) -> None:
    """`removed`: queues of which nothing is known any more."""
    ordered = sorted(changed, key=lambda one: one.queue)
    if ordered:
        await tx.run(
            """
            INSERT INTO own.service_observation (queue, unconsumed_since, consumed_at, restarted_at, connection_lost_at,
                                          first_heartbeat, inactive_heartbeat)
            SELECT * FROM unnest(CAST(:queues AS text[]), CAST(:unconsumed AS timestamptz[]),
                                 CAST(:consumed AS timestamptz[]), CAST(:restarted AS timestamptz[]),
                                 CAST(:lost AS timestamptz[]), CAST(:heartbeats AS timestamptz[]),
                                 CAST(:inactive AS timestamptz[]))
            ON CONFLICT (queue) DO UPDATE
               SET unconsumed_since = excluded.unconsumed_since, consumed_at = excluded.consumed_at,
                   restarted_at = excluded.restarted_at, connection_lost_at = excluded.connection_lost_at,
                   first_heartbeat = excluded.first_heartbeat, inactive_heartbeat = excluded.inactive_heartbeat
            """,
            queues=[one.queue for one in ordered],
            unconsumed=[one.unconsumed_since for one in ordered],
            consumed=[one.consumed_at for one in ordered],
            restarted=[one.restarted_at for one in ordered],
            lost=[one.connection_lost_at for one in ordered],
            heartbeats=[one.first_heartbeat for one in ordered],
            inactive=[one.inactive_heartbeat for one in ordered],
        )
    if removed:
        await tx.run(
            "DELETE FROM own.service_observation WHERE queue = ANY (CAST(:queues AS text[]))",
            queues=sorted(removed),
        )
    await keep_progress(tx, _PROGRESS, until=at)
