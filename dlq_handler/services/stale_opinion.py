"""What the monitor thinks of one execution right now. Looks, judges as a sweep would, writes nothing."""

from dlq_handler.domain.judge_stale import judge_stale
from dlq_handler.domain.stale_case import StaleCase, StalePolicy
from dlq_handler.domain.stale_verdict import StaleVerdict
from dlq_handler.services.stale_cases import Sight, gather_cases
from dlq_handler.store.dead_letters import read_executions
from dlq_handler.store.engine import Database


async def opinion(
    database: Database,
    sight: Sight,
    policy: StalePolicy,
    gate_watched_seconds: float,
    execution_id: int,
    *,
    is_shadow: bool = False,
) -> StaleVerdict | None:
    """None: no such execution, or in a status that this version does not know."""
    case = await look_at(database, sight, policy, gate_watched_seconds, execution_id, is_shadow=is_shadow)
    return None if case is None else judge_stale(case)


async def look_at(
    database: Database,
    sight: Sight,
    policy: StalePolicy,
    gate_watched_seconds: float,
    execution_id: int,
    *,
    is_shadow: bool = False,
) -> StaleCase | None:
    """The facts alone; None as for `opinion`.

    `gate_watched_seconds`: a command, whose own link is always young, says what a sidecar that has watched for long
    would say by giving more than `unavailable_after_seconds`.
    It knows of no clock that jumped.
    """
    async with database.transaction() as tx:
        execution = (await read_executions(tx, [execution_id])).executions.get(execution_id)
    if execution is None:
        return None
    # Not inside a transaction: the broker may take its time.
    sights = {} if execution.worker_id is None else await sight.look([execution.worker_id])
    async with database.transaction() as tx:
        view = await read_executions(tx, [execution_id])
        gathered = await gather_cases(
            tx,
            view,
            sights=sights,
            looks={},
            watched_seconds=gate_watched_seconds,
            steady_since=None,
            policy=policy,
            is_shadow=is_shadow,
        )
    return gathered.cases[0] if gathered.cases else None
