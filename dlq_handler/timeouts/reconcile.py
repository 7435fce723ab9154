"""What the slow look finds: ends that nobody heard of, and executions that came back after we ended them. Pure."""

from datetime import datetime
from enum import StrEnum

from dlq_handler.dead_letters.parse import read_time
from dlq_handler.dead_letters.result import FAILED_BY
from dlq_handler.host.ends import EndOfOurs, UnheardEnd
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.messages import Destination, ExecutionMessage, completion_event
from dlq_handler.text import rounded
from dlq_handler.timeouts.decision import StaleOutcome, StaleRecord

# Whoever is so after we ended it was brought back.
UNDER_WAY = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.CANCELING})


class Finding(StrEnum):
    HELD_SLOT = "held_slot"
    """An execution has ended, and its slot is still taken: others wait behind it for nothing."""
    SILENT_END = "silent_end"
    """The host's own handler failed it and told nobody."""
    UNPUBLISHED_END = "unpublished_end"
    """The host's own timeout monitor ended it while no consumer was there to hear of it: its event was lost."""
    REVERTED_BY_WORKER = "reverted_by_worker"
    """We ended it, and a late worker brought it back."""
    LOST_REQUEST = "lost_request"
    """It waits to be scheduled, and nothing says that the scheduler knows of it."""


def is_long_past(end: UnheardEnd, *, since: datetime) -> bool:
    """By what the host's handler wrote, as `updated` moves with everything that touches a row: whoever deletes a worker
    would have us tell of what its workflows got over months ago. What cannot be read is taken for new.
    """
    expired_at = read_time(end.evidence.get("expired_at"))
    return expired_at is not None and expired_at < since


def announcement(end: UnheardEnd, *, destination: Destination, now: datetime) -> ExecutionMessage:
    """Of the row as it is.

    Its id is made from the `updated` of a row that has ended. All other notices are made from that of a row that was
    still open, so this one is new to whoever remembers ids, and the same whenever it is repeated.
    """
    return completion_event(
        end.execution,
        end.execution.status,
        end.result,
        destination=destination,
        correlation_id=None,
        now=now,
    )


def announced_record(
    end: UnheardEnd, finding: Finding, *, now: datetime, replica: str, is_shadow: bool
) -> StaleRecord:
    whys = {
        Finding.HELD_SLOT: "has ended, and its slot was still taken",
        Finding.SILENT_END: "the host's own dead-letter handler failed it, which tells nobody",
        Finding.UNPUBLISHED_END: "Attune's timeout monitor ended it while the queue had no consumer",
    }
    return StaleRecord(
        execution_id=end.execution.id,
        attempt_updated_at=end.execution.updated,
        original_status=end.execution.status.value,
        outcome=StaleOutcome.COMPLETION_PUBLISHED,
        worker_id=end.execution.worker_id,
        explanation=whys[finding],
        evidence={"finding": finding.value, **end.evidence},
        is_shadow=is_shadow,
        decided_at=now,
        replica=replica,
    )


def is_brought_back(end: EndOfOurs) -> bool:
    """Did anybody go on with it after we had ended it?

    A row that has ended and moved since is no proof: deleting a worker moves every row it had. There the result must be
    another's. A row that runs is proof enough, whatever its `updated`: that is when the writer's transaction began,
    which may have waited for ours.
    """
    if end.execution.status in UNDER_WAY:
        return True
    has_moved = end.execution.updated > end.ended_at
    return end.execution.status.is_terminal and has_moved and end.signature != FAILED_BY


def resurrected_record(end: EndOfOurs, *, now: datetime, replica: str) -> StaleRecord:
    """One for each ending that was undone, however often the row moves afterwards."""
    execution = end.execution
    by = f"worker {execution.worker_id}" if execution.worker_id is not None else "somebody"
    return StaleRecord(
        execution_id=execution.id,
        attempt_updated_at=end.ended_at,
        original_status=execution.status.value,
        outcome=StaleOutcome.REVERTED_BY_WORKER,
        worker_id=execution.worker_id,
        explanation=f"{execution.status} after {end.ended_by} had ended it: {by} went on with it",
        evidence={
            "ended_by": end.ended_by,
            "ended_at": end.ended_at.isoformat(),
            "ended_by_instance": end.replica,
            "status": execution.status.value,
            "updated": execution.updated.isoformat(),
            "worker": execution.worker_id,
            "heartbeat_age_seconds": rounded(end.heartbeat_age_seconds),
        },
        decided_at=now,
        replica=replica,
    )
