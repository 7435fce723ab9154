"""Settings of how long records are kept."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import OwnSection, Seconds


class RetentionOptions(OwnSection):
    """Retention of records (`message_queue.rabbitmq.dead_letter.ttl_ms`: of resolved dead letters)."""

    unresolved_days: Annotated[int, Field(ge=1, le=3660)] = Field(
        default=30,
        description=(
            "Retention of the record of an unresolved dead letter, in days; afterwards it cannot be reprocessed. "
            "Groups of dead letters and the audit are kept as long."
        ),
    )
    history_days: Annotated[int, Field(ge=1, le=3660)] = Field(
        default=7,
        description=(
            "Retention of the history, in days: dead letters by the minute, availability of workers, diagnoses."
        ),
    )
    interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=300,
        description="Interval at which retention deletes records, in seconds.",
    )
