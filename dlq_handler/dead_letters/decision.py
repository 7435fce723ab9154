"""The decision about a dead letter. Each dead letter gets one decision, and each decision is one outcome on record."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    FAILED = "failed"
    ALREADY_TERMINAL = "already_terminal"
    STALE_ATTEMPT = "stale_attempt"
    SUPERSEDED = "superseded"
    LEFT_TO_MONITOR = "left_to_monitor"
    UNKNOWN_EXECUTION = "unknown_execution"
    UNRELATED = "unrelated"
    UNREADABLE = "unreadable"
    UPDATE_FAILED = "update_failed"
    DEFERRED = "deferred"

    @property
    def is_resolved(self) -> bool:
        """Resolved records may be deleted after `dead_letter.ttl_ms`; the others wait for a person or a retry."""
        return self not in UNRESOLVED


UNRESOLVED = frozenset(
    {
        Outcome.UNKNOWN_EXECUTION,
        Outcome.UNRELATED,
        Outcome.UNREADABLE,
        Outcome.UPDATE_FAILED,
        Outcome.DEFERRED,
    }
)

# Outcomes that `letters reprocess` may change: executions and settings may differ by now. Unreadable stays unreadable.
REPROCESSABLE = frozenset(
    {Outcome.UNKNOWN_EXECUTION, Outcome.UNRELATED, Outcome.UPDATE_FAILED, Outcome.DEFERRED}
)


@dataclass(frozen=True, slots=True)
class Fail:
    """The execution ends as failed, and its end is announced."""

    explanation: str
    outcome: Outcome = Outcome.FAILED


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """The letter is settled; the execution is none of its business (any more)."""

    outcome: Outcome
    explanation: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing can be decided; the letter is kept for a person."""

    outcome: Outcome
    explanation: str


Decision = Fail | LeaveAlone | Keep
