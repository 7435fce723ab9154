"""The decision about a dead letter. Each dead letter gets one decision, and each decision is one outcome on record."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

# In the `result` of every execution that dlq-handler ended.
FAILED_BY = "dlq_handler"


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
    ARCHIVED = "archived"

    @property
    def is_resolved(self) -> bool:
        """Resolved records are deleted after `dead_letter.ttl_ms`. The others wait for a person or another attempt."""
        match self:
            case (
                Outcome.FAILED
                | Outcome.ALREADY_TERMINAL
                | Outcome.STALE_ATTEMPT
                | Outcome.SUPERSEDED
                | Outcome.LEFT_TO_MONITOR
                | Outcome.ARCHIVED
            ):
                return True
            case (
                Outcome.UNKNOWN_EXECUTION
                | Outcome.UNRELATED
                | Outcome.UNREADABLE
                | Outcome.UPDATE_FAILED
                | Outcome.DEFERRED
            ):
                return False
            case never:
                assert_never(never)

    @property
    def is_reprocessable(self) -> bool:
        """Executions and settings may have changed since. An unreadable dead letter stays unreadable."""
        return not self.is_resolved and self is not Outcome.UNREADABLE

    @property
    def execution_exists(self) -> bool | None:
        """None: no execution was read for the decision."""
        match self:
            case (
                Outcome.FAILED
                | Outcome.ALREADY_TERMINAL
                | Outcome.STALE_ATTEMPT
                | Outcome.SUPERSEDED
                | Outcome.LEFT_TO_MONITOR
            ):
                return True
            case Outcome.UNKNOWN_EXECUTION:
                return False
            case (
                Outcome.UNRELATED
                | Outcome.UNREADABLE
                | Outcome.UPDATE_FAILED
                | Outcome.DEFERRED
                | Outcome.ARCHIVED
            ):
                return None
            case never:
                assert_never(never)


UNRESOLVED = frozenset(outcome for outcome in Outcome if not outcome.is_resolved)
REPROCESSABLE = frozenset(outcome for outcome in Outcome if outcome.is_reprocessable)


@dataclass(frozen=True, slots=True)
class Fail:
    """The execution ends as failed, and its completion event is published."""

    explanation: str
    outcome: Outcome = Outcome.FAILED


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """The dead letter is resolved, and the execution is not changed."""

    outcome: Outcome
    explanation: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing can be decided; the dead letter is kept for a person."""

    outcome: Outcome
    explanation: str


Decision = Fail | LeaveAlone | Keep
