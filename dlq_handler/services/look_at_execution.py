"""The facts by which the monitor would judge one execution right now. Looks as a sweep does, writes nothing."""

from dlq_handler.domain.publishes import PublishView
from dlq_handler.domain.stale_case import StaleCase, StalePolicy
from dlq_handler.services.stale_cases import Sight, gather_cases
from dlq_handler.store.dead_letters import read_executions
from dlq_handler.store.engine import Database


async def look_at(
    database: Database,
    sight: Sight,
    policy: StalePolicy,
    gate_watched_seconds: float,
    execution_id: int,
    *,
    is_shadow: bool = False,
) -> StaleCase | None:
    """None: no such execution, or in a status that this version does not know.

    `gate_watched_seconds`: a command, whose own link is always young, says what a sidecar that has watched for long
    would say by giving more than `unavailable_after_seconds`. It knows of no clock that jumped, and it has published
    nothing: as for heartbeats, it assumes that a replica has watched the broker for long enough.
    """
    async with database.transaction() as tx:
        execution = (await read_executions(tx, [execution_id])).executions.get(execution_id)
    if execution is None:
        return None
    # Not inside a transaction: the broker may take its time.
    sights = {} if execution.worker_id is None else await sight.look([execution.worker_id])
    longest_ttl_ms = await sight.longest_ttl_ms()
    async with database.transaction() as tx:
        view = await read_executions(tx, [execution_id])
        gathered = await gather_cases(
            tx,
            view,
            sights=sights,
            looks={},
            watched_seconds=gate_watched_seconds,
            steady_since=None,
            longest_ttl_ms=longest_ttl_ms,
            publishes=PublishView(quick_seconds=float("inf"), confirmed_seconds_ago=0.0),
            policy=policy,
            is_shadow=is_shadow,
        )
    return gathered.cases[0] if gathered.cases else None
