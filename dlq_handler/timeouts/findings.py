"""Ends without a completion event, and executions that came back after their end: findings and their records. Pure."""

from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from dlq_handler.dead_letters.decision import FAILED_BY
from dlq_handler.dead_letters.parse import read_time
from dlq_handler.endings.options import RecordOptions
from dlq_handler.host.ends import EndWithoutEvent, OwnEnd
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.messages import Destination, ExecutionMessage, completion_event
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
