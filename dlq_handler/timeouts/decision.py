"""What becomes of an execution that no letter told of, and how it goes on record.

The decides return one of these decisions; on record go only decisions, never that something still waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from dlq_handler.endings.retry_delay import next_try
from dlq_handler.host.execution import Execution, ExecutionStatus


class StaleOutcome(StrEnum):
    FAILED = "failed"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    REANNOUNCED = "reannounced"
    """Still not scheduled: its request was published once more."""
    ANNOUNCED = "announced"
    """Ended by somebody who did not tell: its end was published."""
    RESURRECTED = "resurrected"
    """Ended by us, and brought back by a late worker."""
    UPDATE_FAILED = "update_failed"
    """The database refused the change; it is tried again."""


@dataclass(frozen=True, slots=True)
class End:
    """Stale: it ends, and its end is announced."""

    becomes: ExecutionStatus
    why: str
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

    why: str
    evidence: Mapping[str, object]

    @property
    def outcome(self) -> StaleOutcome:
        return StaleOutcome.REANNOUNCED


@dataclass(frozen=True, slots=True)
class Wait:
    """Not to be ended yet; `until` is when it is worth while to look again, None when only an event can tell."""

    why: str
    until: datetime | None
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NotStale:
    """None of the monitor's business as long as it is in this status, or has no worker."""

    why: str


StaleDecision = End | Wait | NotStale


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleRecord:
    """One decision about one attempt of an execution, as it is kept."""

    execution_id: int
    attempt: datetime
    """The `updated` that the decision was made about."""
    original_status: str
    outcome: StaleOutcome
    worker_id: int | None
    why: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    error: str | None = None
    tries: int = 0
    """How often the database refused it."""
    next_try_at: datetime | None = None
    is_shadow: bool = False
    """True: only what would have been done."""
    decided_at: datetime
    instance: str


def record_of(
    execution: Execution,
    decision: End | AnnounceAgain,
    *,
    now: datetime,
    instance: str,
    is_shadow: bool = False,
) -> StaleRecord:
    return StaleRecord(
        execution_id=execution.id,
        attempt=execution.updated,
        original_status=execution.status.value,
        outcome=decision.outcome,
        worker_id=execution.worker_id,
        why=decision.why,
        evidence=decision.evidence,
        is_shadow=is_shadow,
        decided_at=now,
        instance=instance,
    )


def refused_record(
    execution: Execution, error: str, *, tries: int, now: datetime, instance: str
) -> StaleRecord:
    """`tries` counts this refusal too."""
    return StaleRecord(
        execution_id=execution.id,
        attempt=execution.updated,
        original_status=execution.status.value,
        outcome=StaleOutcome.UPDATE_FAILED,
        worker_id=execution.worker_id,
        why="the database refused to let it end",
        error=error,
        tries=tries,
        next_try_at=next_try(now, tries),
        decided_at=now,
        instance=instance,
    )
