"""The facts by which the monitor would decide one execution right now. Looks as a scan does, writes nothing."""

from dlq_handler.broker.publish.publishes import PublishView
from dlq_handler.database.engine import Database
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.executions_sql import read_executions
from dlq_handler.host.worker import by_heartbeat
from dlq_handler.host.workers_sql import read_workers
from dlq_handler.timeouts.case import StaleCase, StalePolicy
from dlq_handler.timeouts.cases import Sight, gather_cases
from dlq_handler.workers.connection import ProcessView
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.processes import look_at_process


async def look_at(
    database: Database,
    sight: Sight,
    policy: StalePolicy,
    gate_watched_seconds: float,
    execution_id: int,
    *,
    is_shadow: bool = False,
    connections: ConnectionSource | None = None,
) -> StaleCase | None:
    """None: no such execution, or in a status that this version does not know.

    `gate_watched_seconds`: a command, whose own link is always young, says what a sidecar that has watched for long
    would say by giving more than `unavailable_after_seconds`. It knows of no clock that jumped, and it has published
    nothing: as for heartbeats, it assumes that a replica has watched the broker for long enough. `connections` None:
    they say nothing about the processes of workers.
    """
    async with database.transaction() as tx:
        execution = (await read_executions(tx, [execution_id])).executions.get(execution_id)
        has_no_worker = execution is not None and execution.worker_id is None
        fleet = by_heartbeat((await read_workers(tx)).values()) if has_no_worker else ()
    if execution is None:
        return None
    # Not inside a transaction: the broker may take its time.
    sights = {} if execution.worker_id is None else await sight.look([execution.worker_id])
    longest_ttl_ms = await sight.longest_ttl_ms(fleet)
    processes: dict[int, ProcessView] = {}
    if (
        connections is not None
        and execution.status is ExecutionStatus.RUNNING
        and execution.worker_id is not None
    ):
        process = await look_at_process(database, connections, execution.worker_id, is_shadow=is_shadow)
        processes[execution.worker_id] = process
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
            processes=processes,
        )
    return gathered.cases[0] if gathered.cases else None
