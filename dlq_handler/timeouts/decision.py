"""What becomes of an execution that no dead letter reports, and how the decision is recorded. Values only.

Only decisions are recorded, never that an execution still waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from dlq_handler.dead_letters.decision import FAILED_BY
from dlq_handler.endings.options import RecordOptions
from dlq_handler.endings.recording import next_attempt
from dlq_handler.host.execution import TRANSITIONS, Execution, ExecutionStatus


class StaleOutcome(StrEnum):
    FAILED = "failed"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    REQUEST_REPUBLISHED = "request_republished"
    """Not scheduled yet: dlq-handler published its request again."""
    COMPLETION_PUBLISHED = "completion_published"
    """Another component ended it without an event: dlq-handler published its completion event."""
    REVERTED_BY_WORKER = "reverted_by_worker"
    """dlq-handler ended it, and a late worker brought it back."""
    UPDATE_FAILED = "update_failed"
    """The database refused the change; it is tried again."""

    @property
    def becomes(self) -> ExecutionStatus | None:
        """The status that the execution ends with; None: this outcome is no end."""
        match self:
            case StaleOutcome.FAILED:
                return ExecutionStatus.FAILED
            case StaleOutcome.ABANDONED:
                return ExecutionStatus.ABANDONED
            case StaleOutcome.CANCELLED:
                return ExecutionStatus.CANCELLED
            case (
                StaleOutcome.REQUEST_REPUBLISHED
                | StaleOutcome.COMPLETION_PUBLISHED
                | StaleOutcome.REVERTED_BY_WORKER
                | StaleOutcome.UPDATE_FAILED
            ):
                return None
            case never:
                assert_never(never)

    @property
    def is_end(self) -> bool:
        return self.becomes is not None

    @property
    def original_statuses(self) -> frozenset[ExecutionStatus]:
        """The statuses of executions for which the metric `stale_executions` counts it; empty: it is not counted."""
        match self:
            case StaleOutcome.FAILED:
                return frozenset(
                    {ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING, ExecutionStatus.SCHEDULED}
                )
            case StaleOutcome.ABANDONED:
                return frozenset({ExecutionStatus.RUNNING})
            case StaleOutcome.CANCELLED:
                return frozenset({ExecutionStatus.CANCELING})
            case StaleOutcome.UPDATE_FAILED:
                return frozenset(TRANSITIONS)
            case (
                StaleOutcome.REQUEST_REPUBLISHED
                | StaleOutcome.COMPLETION_PUBLISHED
                | StaleOutcome.REVERTED_BY_WORKER
            ):
                return frozenset()
            case never:
                assert_never(never)

    @property
    def is_resolved(self) -> bool:
        """Resolved records are deleted after `dead_letter.ttl_ms`, because the row itself shows the end. The others
        are kept longer: an event that was published must not be published again.
        """
        match self:
            case StaleOutcome.FAILED | StaleOutcome.ABANDONED | StaleOutcome.CANCELLED:
                return True
            case (
                StaleOutcome.REQUEST_REPUBLISHED
                | StaleOutcome.COMPLETION_PUBLISHED
                | StaleOutcome.REVERTED_BY_WORKER
                | StaleOutcome.UPDATE_FAILED
            ):
                return False
            case never:
                assert_never(never)

    @property
    def is_repeatable(self) -> bool:
        """The same decision about the same attempt updates its record; otherwise the first record stays."""
        match self:
            case StaleOutcome.REQUEST_REPUBLISHED | StaleOutcome.UPDATE_FAILED:
                return True
            case (
                StaleOutcome.FAILED
                | StaleOutcome.ABANDONED
                | StaleOutcome.CANCELLED
                | StaleOutcome.COMPLETION_PUBLISHED
                | StaleOutcome.REVERTED_BY_WORKER
            ):
                return False
            case never:
                assert_never(never)

    @property
    def is_revertible(self) -> bool:
        """A late worker that writes over this end is recorded. Over a cancelled execution it is not: a known gap."""
        match self:
            case StaleOutcome.FAILED | StaleOutcome.ABANDONED:
                return True
            case (
                StaleOutcome.CANCELLED
                | StaleOutcome.REQUEST_REPUBLISHED
                | StaleOutcome.COMPLETION_PUBLISHED
                | StaleOutcome.REVERTED_BY_WORKER
                | StaleOutcome.UPDATE_FAILED
            ):
                return False
            case never:
                assert_never(never)


# As parameters of statements.
ENDS = tuple(outcome.value for outcome in StaleOutcome if outcome.is_end)
RESOLVED = tuple(outcome.value for outcome in StaleOutcome if outcome.is_resolved)
REPEATABLE = tuple(outcome.value for outcome in StaleOutcome if outcome.is_repeatable)
REVERTIBLE = tuple(outcome.value for outcome in StaleOutcome if outcome.is_revertible)


@dataclass(frozen=True, slots=True)
class End:
    """Stale: it ends, and its completion event is published."""

    becomes: ExecutionStatus
    explanation: str
    evidence: Mapping[str, object]
    limit_seconds: float
    """The limit that it has exceeded: the deadline, or the limit of its status."""
    error: str = "Worker unavailable"
    """How the `error` of an abandoned execution begins."""

    @property
    def outcome(self) -> StaleOutcome:
        return StaleOutcome(self.becomes.value)


@dataclass(frozen=True, slots=True)
class RepublishRequest:
    """Not scheduled yet: its request is published again; the row stays as it is."""

    explanation: str
    evidence: Mapping[str, object]

    @property
    def outcome(self) -> StaleOutcome:
        return StaleOutcome.REQUEST_REPUBLISHED


@dataclass(frozen=True, slots=True)
class Wait:
    """Not to be ended yet."""

    explanation: str
    until: datetime | None
    """When the answer may change by time alone; None: only an event can change it."""
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NotStale:
    """The monitor does not end it as long as it is in this status, or has no worker."""

    explanation: str


StaleDecision = End | Wait | NotStale


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleRecord:
    """One decision about one attempt of an execution, as it is stored."""

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
    outcome: StaleOutcome,
    explanation: str,
    evidence: Mapping[str, object],
    *,
    options: RecordOptions,
    now: datetime,
) -> StaleRecord:
    return StaleRecord(
        execution_id=execution.id,
        attempt_updated_at=execution.updated,
        original_status=execution.status.value,
        outcome=outcome,
        worker_id=execution.worker_id,
        explanation=explanation,
        evidence=evidence,
        is_shadow=options.is_shadow,
        decided_at=now,
        replica=options.replica,
    )


def refused_record(
    execution: Execution, error: str, *, attempts: int, options: RecordOptions, now: datetime
) -> StaleRecord:
    """`attempts` includes this refusal."""
    explanation = "the database refused to let it end"
    record = record_of(execution, StaleOutcome.UPDATE_FAILED, explanation, {}, options=options, now=now)
    return replace(record, error=error, attempts=attempts, next_attempt_at=next_attempt(now, attempts))


def stale_result(execution: Execution, decision: End, now: datetime) -> dict[str, object]:
    """The `result` of the execution: the fields that Attune's own monitor writes, and the evidence."""
    if decision.becomes is ExecutionStatus.ABANDONED:
        return {
            "error": f"{decision.error}: {decision.explanation}",
            "abandoned_by": FAILED_BY,
            "original_status": execution.status.value,
            "worker": execution.worker_id,
            "reconciled_at": now.isoformat(),
            "evidence": dict(decision.evidence),
        }
    is_cancelled = decision.becomes is ExecutionStatus.CANCELLED
    return {
        "error": f"Execution timeout: {decision.explanation}",
        "cancelled_by" if is_cancelled else "failed_by": FAILED_BY,
        "timeout_seconds": int(decision.limit_seconds),
        "age_seconds": int((now - execution.updated).total_seconds()),
        "original_status": execution.status.value,
        "evidence": dict(decision.evidence),
    }
