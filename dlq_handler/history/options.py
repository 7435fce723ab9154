"""Settings of how long records are kept."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dlq_handler.options import OwnSection, Seconds


class RetentionOptions(OwnSection):
    """Retention of records (`message_queue.rabbitmq.dead_letter.ttl_ms`: of resolved dead letters)."""

    unresolved_days: Annotated[int, Field(ge=1, le=3660)] = 30
    """Retention of the record of an unresolved dead letter, in days; afterwards it cannot be reprocessed. Groups of
    dead letters and the audit are kept as long."""
    history_days: Annotated[int, Field(ge=1, le=3660)] = 7
    """Retention of the history, in days: dead letters by the minute, availability of workers, diagnoses."""
    interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = 300
    """Interval at which retention deletes records, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Retention in seconds, from this section and from that of the host."""

    resolved_seconds: float
    unresolved_seconds: float
    interval_seconds: float
    history_seconds: float = 7 * 86_400.0

    @property
    def longest_seconds(self) -> float:
        """A letter that was resolved on its last day is kept for as long as any other, and its group with it."""
        return self.unresolved_seconds + self.resolved_seconds
