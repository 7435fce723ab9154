"""Settings of how long records are kept."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import OwnSection, Seconds


class RetentionOptions(OwnSection):
    """How long records are kept (`message_queue.rabbitmq.dead_letter.ttl_ms` is for the resolved ones)."""

    unresolved_days: Annotated[int, Field(ge=1, le=3660)] = Field(
        default=30,
        description=(
            "Days that the record of an unresolved dead letter is kept; afterwards it cannot be reprocessed. "
            "Groups of dead letters and the audit are kept as long."
        ),
    )
    history_days: Annotated[int, Field(ge=1, le=3660)] = Field(
        default=7,
        description=(
            "Days that the chart reaches back: letters by the minute, workers that went and came, diagnoses."
        ),
    )
    interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=300,
        description="Every how many seconds records past their time are removed.",
    )
