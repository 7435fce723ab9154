"""What becomes of an execution that no letter told of, and how it goes on record.

The decides return one of these decisions; on record go only decisions, never that something still waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from dlq_handler.endings.refusal import next_attempt
from dlq_handler.host.execution import Execution, ExecutionStatus


class StaleOutcome(StrEnum):
    FAILED = "failed"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    REQUEST_REPUBLISHED = "request_republished"
    """Still not scheduled: its request was published once more."""
    COMPLETION_PUBLISHED = "completion_published"
    """Ended by somebody who did not tell: its end was published."""
    REVERTED_BY_WORKER = "reverted_by_worker"
    """Ended by us, and brought back by a late worker."""
    UPDATE_FAILED = "update_failed"
    """The database refused the change; it is tried again."""


@dataclass(frozen=True, slots=True)
class End:
    """Stale: it ends, and its end is announced."""

    becomes: ExecutionStatus
    explanation: str
    evidence: Mapping[str, object]
    limit_seconds: float
    """The limit it went beyond: the horizon, or what stands for it in another status."""
    error: str = "Worker unavailable"
    """How the `error` of an abandoned execution begins."""

    @property
    def outcome(self) -> StaleOutcome:
        return StaleOutcome(self.becomes.value)


@dataclass(frozen=True, slots=True)
class AnnounceAgain:
    """Not scheduled yet: its request is published once more; the row stays as it is."""

    explanation: str
    evidence: Mapping[str, object]

    @property
    def outcome(self) -> StaleOutcome:
        return StaleOutcome.REQUEST_REPUBLISHED


@dataclass(frozen=True, slots=True)
class Wait:
    """Not to be ended yet; `until` is when it is worth while to look again, None when only an event can tell."""

    explanation: str
    until: datetime | None
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NotStale:
    """None of the monitor's business as long as it is in this status, or has no worker."""

    explanation: str


StaleDecision = End | Wait | NotStale


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleRecord:
    """One decision about one attempt of an execution, as it is kept."""

    execution_id: int
    attempt_updated_at: datetime
    """The `updated` that the decision was made about."""
    original_status: str
    outcome: StaleOutcome
    worker_id: int | None
    explanation: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    error: str | None = None
    attempts: int = 0
    """How often the database refused it."""
    next_attempt_at: datetime | None = None
    is_shadow: bool = False
    """True: only what would have been done."""
    decided_at: datetime
    replica: str


def record_of(
    execution: Execution,
    decision: End | AnnounceAgain,
    *,
    now: datetime,
    replica: str,
    is_shadow: bool = False,
) -> StaleRecord:
    return StaleRecord(
        execution_id=execution.id,
        attempt_updated_at=execution.updated,
        original_status=execution.status.value,
        outcome=decision.outcome,
        worker_id=execution.worker_id,
        explanation=decision.explanation,
        evidence=decision.evidence,
        is_shadow=is_shadow,
        decided_at=now,
        replica=replica,
    )


def refused_record(
    execution: Execution, error: str, *, attempts: int, now: datetime, replica: str
) -> StaleRecord:
    """`attempts` counts this refusal too."""
    return StaleRecord(
        execution_id=execution.id,
        attempt_updated_at=execution.updated,
        original_status=execution.status.value,
        outcome=StaleOutcome.UPDATE_FAILED,
        worker_id=execution.worker_id,
        explanation="the database refused to let it end",
        error=error,
        attempts=attempts,
        next_attempt_at=next_attempt(now, attempts),
        decided_at=now,
        replica=replica,
    )
