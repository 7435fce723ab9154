"""Explain one execution: what is on record about it, and while it is open, what the monitor thinks of it right now.

Reads only, and asks the broker only about the one queue that matters. What it cannot ask, it says.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import read_lease
from dlq_handler.errors import Unavailable
from dlq_handler.explain.look import look_at
from dlq_handler.explain.records import ExecutionFacts, Records, Waiting
from dlq_handler.explain.records_sql import records_of
from dlq_handler.explain.replicas import Sidecars
from dlq_handler.explain.services import EXECUTOR_DOES_NOT_CONSUME, worker_note
from dlq_handler.explain.story import Moment, tell
from dlq_handler.explain.waiting import waiting_of
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.unscheduled_sql import unscheduled_row
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.masking import masked_object
from dlq_handler.safety import brake_sql as brake
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.timeouts.case import StaleCase, StalePolicy
from dlq_handler.timeouts.cases import Sight
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decide_unscheduled import (
    UNSCHEDULED,
    UnscheduledDecision,
    UnscheduledPolicy,
    decide_unscheduled,
)
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.service_looks_sql import eventful_looks

# The row may move between the reading of its story and the deciding of it: then the story is read again, so often.
_READS = 3
_MOVED = Waiting(explanation="its row moves while it is looked at; ask again")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainPolicy:
    stale: StalePolicy
    unscheduled: UnscheduledPolicy
    brake: BrakeOptions
    names: WorkerQueueNames
    lease: str
    """The name of the leader's."""
    is_monitored: bool
    is_shadow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """For people: what may be secret in it is masked."""

    records: Records
    moments: list[Moment]
    waiting: Waiting | None
    """None: it has ended, or there is no such row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """What the monitor would say, and of which row."""

    execution: Execution
    decision: UnscheduledDecision
    case: StaleCase | None = None
    note: str | None = None
    """Which service of the host has to be restarted first; None: nothing says so."""


async def explain(
    database: Database,
    execution_id: int,
    policy: ExplainPolicy,
    *,
    sight: Sight,
    requests_queue: Callable[[], Awaitable[QueueCounts | None]],
    connections: ConnectionSource | None = None,
) -> Explanation | None:
    """None: no record of it exists. `connections` None: they say nothing about the processes of workers."""
    reads_left = _READS
    while True:
        records = await records_of(database, execution_id)
        if records.is_unknown:
            return None
        waiting = await _waiting(
            database, records, policy, sight, requests_queue=requests_queue, connections=connections
        )
        reads_left -= 1
        if waiting is not _MOVED or reads_left == 0:
            # Records come masked from the store; what was decided just now did not go through it.
            if waiting is not None:
                waiting = replace(waiting, evidence=masked_object(waiting.evidence))
            return Explanation(records=records, moments=tell(records), waiting=waiting)


async def _waiting(
    database: Database,
    records: Records,
    policy: ExplainPolicy,
    sight: Sight,
    *,
    requests_queue: Callable[[], Awaitable[QueueCounts | None]],
    connections: ConnectionSource | None,
) -> Waiting | None:
    """None: it is over. `_MOVED`: what was decided is not what was read."""
    execution = records.execution
    if execution is None or execution.is_terminal:
        return None
    if execution.status not in set(ExecutionStatus):
        return Waiting(explanation=f"in status {execution.status!r}, which this version does not know")
    decided = await _decide(
        database, execution, policy, sight, requests_queue=requests_queue, connections=connections
    )
    if decided is None or not _is_same(decided.execution, execution):
        return _MOVED
    sidecars = await _sidecars(database, policy)
    waiting = waiting_of(decided.decision, records=records, sidecars=sidecars, case=decided.case)
    return waiting if decided.note is None else replace(waiting, notes=[decided.note, *waiting.notes])


def _is_same(decided: Execution, told: ExecutionFacts) -> bool:
    return (decided.status, decided.updated) == (told.status, told.updated)


async def _decide(
    database: Database,
    execution: ExecutionFacts,
    policy: ExplainPolicy,
    sight: Sight,
    *,
    requests_queue: Callable[[], Awaitable[QueueCounts | None]],
    connections: ConnectionSource | None,
) -> _Decided | None:
    """None: it is gone."""
    if execution.status in UNSCHEDULED:
        return await _unscheduled(database, execution.id, policy.unscheduled, requests_queue)
    # As a sidecar would decide that has watched for long enough: our own link is as young as the command.
    watched_seconds = policy.stale.availability.unavailable_after_seconds
    case = await look_at(
        database,
        sight,
        policy.stale,
        watched_seconds,
        execution.id,
        is_shadow=policy.is_shadow,
        connections=connections,
    )
    if case is None:
        return None
    note = worker_note(case, await eventful_looks(database), policy.names)
    return _Decided(execution=case.execution, decision=decide_stale(case), case=case, note=note)


async def _unscheduled(
    database: Database,
    execution_id: int,
    policy: UnscheduledPolicy,
    requests_queue: Callable[[], Awaitable[QueueCounts | None]],
) -> _Decided | None:
    try:
        counts = await requests_queue()
    except Unavailable:
        counts = None
    # One look, taken for those of the whole quiet time: what a sidecar that has looked for so long would say.
    is_quiet = counts is not None and counts.consumers > 0 and counts.ready == 0
    quiet_seconds = policy.quiet_seconds if is_quiet else None
    async with database.transaction() as tx:
        one = await unscheduled_row(tx, execution_id)
    if one is None:
        return None
    decision = decide_unscheduled(one.row, quiet_seconds=quiet_seconds, policy=policy, now=one.now)
    note = EXECUTOR_DOES_NOT_CONSUME if counts is not None and counts.consumers == 0 else None
    return _Decided(execution=one.row.execution, decision=decision, note=note)


async def _sidecars(database: Database, policy: ExplainPolicy) -> Sidecars:
    async with database.transaction() as tx:
        lease = await read_lease(tx, policy.lease)
        view = await brake.look(tx)
    return Sidecars(
        is_led=lease is not None and lease.is_held,
        lease_ended_at=lease.until if lease is not None else None,
        is_monitored=policy.is_monitored,
        is_shadow=policy.is_shadow,
        brake=view,
        brake_policy=policy.brake,
    )
