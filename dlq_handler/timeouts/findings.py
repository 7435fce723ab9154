"""Ends without a completion event, and executions that came back after their end. Pure.

Attune's services never reconnect to the broker. After a lost connection the executor's monitor goes on ending
executions, and their completion events are lost. It has lost its consumers as well, so such an end lies in an
interval in which the queue of completion events had no consumer. That is strong evidence, and no proof: an executor may
have lost its consumer alone. A repeated event frees a slot once, whatever happens. But for a workflow task it makes a
second retry, or sets the workflow's variables a second time. So the event of a task waits until the host would have
answered an event of its own, and is not published where it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from dlq_handler.dead_letters.decision import FAILED_BY
from dlq_handler.dead_letters.parse import read_time
from dlq_handler.endings.options import RecordOptions
from dlq_handler.host.ends import EndedTask, EndWithoutEvent, MonitorEnd, OwnEnd
from dlq_handler.host.execution import TERMINAL, ExecutionStatus
from dlq_handler.host.messages import Destination, ExecutionMessage, completion_event
from dlq_handler.host.names import COMPLETED_KEY, COMPLETED_QUEUE
from dlq_handler.text import rounded
from dlq_handler.timeouts.decision import StaleOutcome, StaleRecord, record_of

# An execution that is so after dlq-handler ended it was brought back.
UNDER_WAY = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.CANCELING})


class ReconcileFinding(StrEnum):
    HELD_SLOT = "held_slot"
    """An execution has ended and still holds its slot: others wait for it in vain."""
    MISSING_EVENT = "missing_event"
    """Attune's dead-letter handler failed it, and published no completion event."""
    UNPUBLISHED_END = "unpublished_end"
    """Attune's timeout monitor ended it while the queue of completion events had no consumer: its event was lost."""
    REVERTED_BY_WORKER = "reverted_by_worker"
    """dlq-handler ended it, and a late worker brought it back."""
    LOST_REQUEST = "lost_request"
    """It waits to be scheduled, and nothing says that the scheduler has its request."""


_WHY_PUBLISHED = {
    ReconcileFinding.HELD_SLOT: "it has ended, and still held its slot",
    ReconcileFinding.MISSING_EVENT: "Attune's own dead-letter handler failed it, and published no completion event",
    ReconcileFinding.UNPUBLISHED_END: "Attune's timeout monitor ended it while the queue had no consumer",
}


def is_long_past(end: EndWithoutEvent, *, since: datetime) -> bool:
    """By the time that Attune's handler wrote. `updated` moves with every change of a row: after a worker is deleted,
    dlq-handler would publish ends that the workflows have got over months ago. An unreadable time counts as new.
    """
    expired_at = read_time(end.evidence.get("expired_at"))
    return expired_at is not None and expired_at < since


def event_of(end: EndWithoutEvent, *, destination: Destination, now: datetime) -> ExecutionMessage:
    """The completion event of the row as it is.

    Its id is made from the `updated` of a row that has ended. The ids of all other events are made from that of a row
    that was still open, so consumers do not take this event for a repeated one. Its repeats have the same id.
    """
    return completion_event(
        end.execution,
        end.execution.status,
        end.result,
        destination=destination,
        correlation_id=None,
        now=now,
    )


def published_record(
    end: EndWithoutEvent, finding: ReconcileFinding, *, options: RecordOptions, now: datetime
) -> StaleRecord:
    evidence = {"finding": finding.value, **end.evidence}
    outcome, explanation = StaleOutcome.COMPLETION_PUBLISHED, _WHY_PUBLISHED[finding]
    return record_of(end.execution, outcome, explanation, evidence, options=options, now=now)


def is_reverted(end: OwnEnd) -> bool:
    """Has another component changed the execution after dlq-handler ended it?

    A terminal row that has moved is no proof: deleting a worker moves every row it had. Then the result must be
    another's. A running row is proof, whatever its `updated`: that is when the transaction began that wrote it, and it
    may have waited for dlq-handler's.
    """
    if end.execution.status in UNDER_WAY:
        return True
    has_moved = end.execution.updated > end.ended_at
    return end.execution.status.is_terminal and has_moved and end.signature != FAILED_BY


def reverted_record(end: OwnEnd, *, options: RecordOptions, now: datetime) -> StaleRecord:
    """One for each end that was undone, however often the row moves afterwards."""
    execution = end.execution
    by = f"worker {execution.worker_id}" if execution.worker_id is not None else "another component"
    explanation = f"{execution.status} after {end.ended_by} had ended it: {by} continued it"
    evidence = {
        "ended_by": end.ended_by,
        "ended_at": end.ended_at.isoformat(),
        "ended_by_replica": end.replica,
        "status": execution.status.value,
        "updated": execution.updated.isoformat(),
        "worker": execution.worker_id,
        "heartbeat_age_seconds": rounded(end.heartbeat_age_seconds),
    }
    outcome = StaleOutcome.REVERTED_BY_WORKER
    record = record_of(execution, outcome, explanation, evidence, options=options, now=now)
    return replace(record, attempt_updated_at=end.ended_at)


# The host creates a retry only after these ends.
_RETRIED = frozenset({ExecutionStatus.FAILED, ExecutionStatus.TIMEOUT})

# Attune holds the message during the delay of a retry. After 30 minutes RabbitMQ closes its channel.
LONGEST_RETRY_DELAY_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class PublishEnd:
    pass


@dataclass(frozen=True, slots=True)
class WaitToPublish:
    explanation: str


@dataclass(frozen=True, slots=True)
class LeaveEnd:
    """The host knows this end, or no component waits for it."""

    explanation: str


EndDecision = PublishEnd | WaitToPublish | LeaveEnd


def decide_unpublished(
    one: MonitorEnd, *, quiet_seconds: float, wanted_quiet_seconds: float, unacked: int | None
) -> EndDecision:
    """`quiet_seconds`: how long the queue has been empty, with a consumer. `unacked`: messages that its consumers hold;
    None: unknown.
    """
    status, task = one.end.execution.status, one.task
    delay = 0.0
    if task is not None:
        if (known := _known_to_host(task)) is not None:
            return LeaveEnd(known)
        if not task.is_workflow_readable:
            # Whether the workflow has continued is unknown: a second event would set its variables again.
            return WaitToPublish("dlq-handler may not read workflow_execution; run `dlq-handler grants`")
        delay = retry_delay_seconds(status, task)
    if quiet_seconds < wanted_quiet_seconds + delay:
        return WaitToPublish(f"the queue must have been empty for {wanted_quiet_seconds + delay:g} s")
    if task is not None and unacked:
        return WaitToPublish(f"the consumers of the queue hold {unacked} messages")
    return PublishEnd()


def _known_to_host(task: EndedTask) -> str | None:
    """How the host has answered the end; None: it seems not to know the end."""
    if task.parent_status is None:
        return "its workflow does not exist"
    if task.parent_status in TERMINAL:
        return f"its workflow is {task.parent_status}"
    if task.is_retried:
        return "its workflow has retried it"
    if task.is_advanced:
        return "its workflow has continued"
    return None


def retry_delay_seconds(status: ExecutionStatus, task: EndedTask) -> float:
    """The longest time that the host may take to create the retry of this task, whose workflow is readable."""
    if status not in _RETRIED:
        return 0.0
    retries, most = _whole(task.retry_count) or 0, _whole(task.max_retries)
    if task.max_retries is None or (most is not None and retries >= most):
        return 0.0
    retry = task.retry if isinstance(task.retry, Mapping) else {}
    delay = _whole(retry.get("delay")) or 0
    # One doubling more than Attune may count, for a version that counts from one.
    factors = {"linear": retries + 1, "exponential": 2 ** min(retries + 1, 20)}
    delay *= factors.get(str(retry.get("backoff")).lower(), 1)
    if (most_delay := _whole(retry.get("max_delay"))) is not None:
        delay = min(delay, most_delay)
    return min(float(delay), LONGEST_RETRY_DELAY_SECONDS)


def unpublished_text(one: MonitorEnd) -> str:
    """For `executions explain`: what becomes of a completion event that dlq-handler has not published."""
    by = "Attune's timeout monitor ended it"
    is_observed = one.interval is not None
    explanation = (
        f"{by} while the queue had no consumer" if is_observed else f"{by}, and it still holds its slot"
    )
    decision = decide_unpublished(one, quiet_seconds=float("inf"), wanted_quiet_seconds=0.0, unacked=None)
    match decision:
        case PublishEnd():
            # A workflow task may take longer: the delay of its retry is added.
            slot = (
                "" if is_observed else "it has held its slot for dlq_handler.monitor.held_slot_seconds and "
            )
            return (
                f"{COMPLETED_KEY} is not published yet: {explanation}; dlq-handler publishes it when {slot}"
                f"{COMPLETED_QUEUE} has had a consumer and no message for "
                "dlq_handler.monitor.quiet_seconds"
            )
        case WaitToPublish(explanation=wait):
            return f"{COMPLETED_KEY} is not published yet: {explanation}; {wait}"
        case LeaveEnd(explanation=known):
            return f"dlq-handler publishes no {COMPLETED_KEY}: {explanation}, but {known}"
        case _:
            assert_never(decision)


def _whole(value: object) -> int | None:
    """None for anything but a whole number of a plausible size: the values are the host's JSON."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 10**9 else None
