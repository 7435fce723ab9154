"""Explain one execution: what is on record about it and, while it is open, what the timeout monitor would decide now.

Reads only. Of the broker's queues it asks about one. An answer that it did not get is named.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.broker.publish_times import PublishView
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import read_lease
from dlq_handler.errors import Unavailable
from dlq_handler.explain.options import ExplainPolicy
from dlq_handler.explain.records import Records, Waiting
from dlq_handler.explain.records_sql import records_of
from dlq_handler.explain.story import Moment, story_of
from dlq_handler.explain.waiting import EXECUTOR_DOES_NOT_CONSUME, Replicas, waiting_of, worker_note
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.executions_sql import read_executions
from dlq_handler.host.names import REQUESTS_QUEUE
from dlq_handler.host.story_sql import ExecutionFacts
from dlq_handler.host.unscheduled_sql import unscheduled_row
from dlq_handler.host.worker import by_heartbeat
from dlq_handler.host.workers_sql import read_workers
from dlq_handler.masking import masked_object
from dlq_handler.safety import brake_sql as brake
from dlq_handler.timeouts.case import ScanFacts, StaleCase, StaleLimits, WorkerQueues
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decide_unscheduled import UNSCHEDULED, UnscheduledDecision, decide_unscheduled
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.timeouts.recorder import gather_cases
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.processes import observe_process
from dlq_handler.workers.service_observations_sql import read_eventful
from dlq_handler.workers.worker_process import ProcessView

# The row may change between reading its records and deciding it: then the records are read again, this many times.
_READS = 3
_MOVED = Waiting(explanation="its row changes while it is read; run the command again")


class QueueObserver(Protocol):
    async def observe(self, worker_ids: Collection[int]) -> WorkerQueues:
        """The queues of these workers, as the broker has them."""

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        """The longest TTL of any worker queue observed; 0: they have none; None: unknown.

        While it is unknown, the queues of these workers may be asked for theirs.
        """

    async def count_queue(self, queue: str) -> QueueCounts | None:
        """None: no such queue. Raises `Unavailable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Secrets in it are masked."""

    records: Records
    moments: list[Moment]
    waiting: Waiting | None
    """None: it has ended, or there is no such row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """What the timeout monitor would decide, and of which row."""

    execution: Execution
    decision: UnscheduledDecision
    case: StaleCase | None = None
    note: str | None = None
    """Which service of the host must be restarted first; None: none is known."""


async def explain(
    database: Database,
    execution_id: int,
    policy: ExplainPolicy,
    *,
    observer: QueueObserver,
    connections: ConnectionSource | None = None,
) -> Explanation | None:
    """None: no record of it exists. `connections` None: they are no evidence about the processes of workers."""
    reads_left = _READS
    while True:
        records = await records_of(database, execution_id)
        if records.is_unknown:
            return None
        waiting = await _waiting(database, records, policy, observer, connections=connections)
        reads_left -= 1
        if waiting is not _MOVED or reads_left == 0:
            # Records are masked where they are read; the evidence of this decision is new.
            if waiting is not None:
                waiting = replace(waiting, evidence=masked_object(waiting.evidence))
            return Explanation(records=records, moments=story_of(records), waiting=waiting)


async def _waiting(
    database: Database,
    records: Records,
    policy: ExplainPolicy,
    observer: QueueObserver,
    *,
    connections: ConnectionSource | None,
) -> Waiting | None:
    """None: it has ended. `_MOVED`: the row that was decided is not the one that was read."""
    execution = records.execution
    if execution is None or execution.is_terminal:
        return None
    if execution.status not in set(ExecutionStatus):
        return Waiting(explanation=f"in status {execution.status!r}, which this version does not know")
    decided = await _decide(database, execution, policy, observer, connections=connections)
    if decided is None or not _is_same(decided.execution, execution):
        return _MOVED
    replicas = await _replicas(database, policy)
    waiting = waiting_of(decided.decision, records=records, replicas=replicas, case=decided.case)
    return waiting if decided.note is None else replace(waiting, notes=[decided.note, *waiting.notes])


def _is_same(decided: Execution, read: ExecutionFacts) -> bool:
    return (decided.status, decided.updated) == (read.status, read.updated)


async def _decide(
    database: Database,
    execution: ExecutionFacts,
    policy: ExplainPolicy,
    observer: QueueObserver,
    *,
    connections: ConnectionSource | None,
) -> _Decided | None:
    """None: the host has no such row."""
    if execution.status in UNSCHEDULED:
        return await _unscheduled(database, execution.id, policy.limits.monitor, observer)
    # As a replica decides that has watched for long enough: the connection of a command is always young.
    watched_seconds = policy.limits.availability.unavailable_after_seconds
    case = await observe_case(
        database,
        observer,
        policy.limits,
        watched_seconds,
        execution.id,
        is_shadow=policy.is_shadow,
        connections=connections,
    )
    if case is None:
        return None
    note = worker_note(case, await read_eventful(database), policy.names)
    return _Decided(execution=case.execution, decision=decide_stale(case), case=case, note=note)


async def _unscheduled(
    database: Database,
    execution_id: int,
    options: MonitorOptions,
    observer: QueueObserver,
) -> _Decided | None:
    try:
        counts = await observer.count_queue(REQUESTS_QUEUE)
    except Unavailable:
        counts = None
    # One observation stands for those of the whole quiet time: a replica has observed the queue for that long.
    is_quiet = counts is not None and counts.consumers > 0 and counts.ready == 0
    quiet_seconds = options.quiet_seconds if is_quiet else None
    async with database.transaction() as tx:
        row = await unscheduled_row(tx, execution_id)
    if row is None:
        return None
    decision = decide_unscheduled(row, quiet_seconds=quiet_seconds, options=options)
    note = EXECUTOR_DOES_NOT_CONSUME if counts is not None and counts.consumers == 0 else None
    return _Decided(execution=row.execution, decision=decision, note=note)


async def _replicas(database: Database, policy: ExplainPolicy) -> Replicas:
    async with database.transaction() as tx:
        lease = await read_lease(tx, policy.lease)
        view = await brake.read_brake(tx)
    return Replicas(
        is_led=lease is not None and lease.is_held,
        lease_ended_at=lease.until if lease is not None else None,
        is_monitored=policy.is_monitored,
        is_shadow=policy.is_shadow,
        brake=view,
        brake_policy=policy.brake,
    )


async def observe_case(
    database: Database,
    observer: QueueObserver,
    limits: StaleLimits,
    gate_watched_seconds: float,
    execution_id: int,
    *,
    is_shadow: bool = False,
    connections: ConnectionSource | None = None,
) -> StaleCase | None:
    """None: no such execution, or in a status that this version does not know.

    Reads as a scan does, writes nothing. `gate_watched_seconds`: a command has just connected; by passing more than
    `unavailable_after_seconds` it decides as a replica that has watched for long enough. It knows of no clock that
    jumped and has published nothing: it assumes that a replica has watched the broker too. `connections` None: they
    are no evidence about the processes of workers.
    """
    async with database.transaction() as tx:
        execution = (await read_executions(tx, [execution_id])).executions.get(execution_id)
        has_no_worker = execution is not None and execution.worker_id is None
        fleet = by_heartbeat((await read_workers(tx)).values()) if has_no_worker else ()
    if execution is None:
        return None
    # Not inside a transaction: the broker may take its time.
    queues = {} if execution.worker_id is None else await observer.observe([execution.worker_id])
    longest_ttl_ms = await observer.longest_ttl_ms(fleet)
    processes: dict[int, ProcessView] = {}
    if (
        connections is not None
        and execution.status is ExecutionStatus.RUNNING
        and execution.worker_id is not None
    ):
        process = await observe_process(database, connections, execution.worker_id, is_shadow=is_shadow)
        processes[execution.worker_id] = process
    async with database.transaction() as tx:
        view = await read_executions(tx, [execution_id])
        cases, _ = await gather_cases(
            tx,
            view,
            ScanFacts(queues=queues, checks={}, longest_ttl_ms=longest_ttl_ms, processes=processes),
            limits,
            watched_seconds=gate_watched_seconds,
            steady_since=None,
            publishes=PublishView(quick_seconds=float("inf"), confirmed_seconds_ago=0.0),
            is_shadow=is_shadow,
        )
    return cases[0] if cases else None
