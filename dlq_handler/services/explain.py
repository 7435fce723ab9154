"""Explain one execution: what is on record about it, and while it is open, what the monitor thinks of it right now.

Reads only, and asks the broker only about the one queue that matters. What it cannot ask, it says.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dlq_handler.broker.queue_probe import QueueCounts
from dlq_handler.domain.brake import BrakePolicy, in_words
from dlq_handler.domain.judge_unscheduled import (
    QUIET_SECONDS,
    UNSCHEDULED,
    UnscheduledPolicy,
    UnscheduledVerdict,
    judge_unscheduled,
)
from dlq_handler.domain.stale_case import StalePolicy
from dlq_handler.domain.story import Moment, tell
from dlq_handler.domain.story_records import ExecutionFacts, Records, Waiting
from dlq_handler.domain.story_waiting import waiting_of
from dlq_handler.errors import Unavailable
from dlq_handler.services.stale_opinion import opinion
from dlq_handler.services.worker_sight import WorkerSight
from dlq_handler.store import brake
from dlq_handler.store.engine import Database
from dlq_handler.store.story import records_of
from dlq_handler.store.unscheduled import unscheduled_row


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainPolicy:
    stale: StalePolicy
    unscheduled: UnscheduledPolicy
    brake: BrakePolicy
    is_monitored: bool
    is_shadow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    records: Records
    moments: list[Moment]
    waiting: Waiting | None
    """None: it has ended, or there is no such row."""


async def explain(
    database: Database,
    execution_id: int,
    policy: ExplainPolicy,
    *,
    sight: WorkerSight,
    requests_queue: Callable[[], Awaitable[QueueCounts | None]],
) -> Explanation | None:
    """None: nobody has ever heard of it."""
    records = await records_of(database, execution_id)
    if records.is_unknown:
        return None
    execution, waiting = records.execution, None
    if execution is not None and not execution.is_terminal:
        if execution.status in UNSCHEDULED:
            verdict = await _unscheduled(database, execution_id, policy.unscheduled, requests_queue)
        else:
            # As a sidecar would judge that has watched for long enough: our own link is as young as the command.
            watched_seconds = policy.stale.availability.unavailable_after_seconds
            verdict = await opinion(
                database, sight, policy.stale, watched_seconds, execution_id, is_shadow=policy.is_shadow
            )
        waiting = await _waiting(database, records, execution, verdict, policy)
    return Explanation(records=records, moments=tell(records), waiting=waiting)


async def _unscheduled(
    database: Database,
    execution_id: int,
    policy: UnscheduledPolicy,
    requests_queue: Callable[[], Awaitable[QueueCounts | None]],
) -> UnscheduledVerdict | None:
    try:
        counts = await requests_queue()
    except Unavailable:
        counts = None
    # One look, taken for those of a minute: what a sidecar that has looked for so long would say.
    is_quiet = counts is not None and counts.consumers > 0 and counts.ready == 0
    quiet_seconds = QUIET_SECONDS if is_quiet else None
    async with database.transaction() as tx:
        one = await unscheduled_row(tx, execution_id)
    if one is None:
        return None
    return judge_unscheduled(one.row, quiet_seconds=quiet_seconds, policy=policy, now=one.now)


async def _waiting(
    database: Database,
    records: Records,
    execution: ExecutionFacts,
    verdict: UnscheduledVerdict | None,
    policy: ExplainPolicy,
) -> Waiting:
    if verdict is None:
        return Waiting(why=f"in status {execution.status!r}, which this version does not know")
    async with database.transaction() as tx:
        view = await brake.look(tx)
    return waiting_of(
        verdict,
        verdicts=records.verdicts,
        attempt=execution.updated,
        brake=in_words(view, policy.brake),
        is_monitored=policy.is_monitored,
        is_shadow=policy.is_shadow,
    )
