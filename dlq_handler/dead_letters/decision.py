"""What becomes of a dead letter. Every letter gets exactly one verdict, every verdict exactly one outcome on record."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    FAILED = "failed"
    ALREADY_TERMINAL = "already_terminal"
    STALE_ATTEMPT = "stale_attempt"
    SUPERSEDED = "superseded"
    LEFT_TO_MONITOR = "left_to_monitor"
    UNKNOWN_EXECUTION = "unknown_execution"
    FOREIGN = "foreign"
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
        Outcome.FOREIGN,
        Outcome.UNREADABLE,
        Outcome.UPDATE_FAILED,
        Outcome.DEFERRED,
    }
)

# What `letters rejudge` may take up again: the world can have changed for these. An unreadable letter stays unreadable.
REJUDGEABLE = frozenset({Outcome.UNKNOWN_EXECUTION, Outcome.FOREIGN, Outcome.UPDATE_FAILED, Outcome.DEFERRED})


@dataclass(frozen=True, slots=True)
class Fail:
    """The execution ends as failed, and its end is announced."""

    why: str
    outcome: Outcome = Outcome.FAILED


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """The letter is settled; the execution is none of its business (any more)."""

    outcome: Outcome
    why: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing can be decided; the letter is kept for a person."""

    outcome: Outcome
    why: str


Verdict = Fail | LeaveAlone | Keep
