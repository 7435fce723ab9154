"""Settings of the outbox and of shadow mode."""

from typing import Annotated

from pydantic import Field

from dlq_handler.host.messages import Destination
from dlq_handler.host.names import COMPLETED_KEY, EXECUTIONS_EXCHANGE
from dlq_handler.options import AmqpName, OwnSection, QueueName, Seconds


class OutboxOptions(OwnSection):
    """How notices are published."""

    exchange: AmqpName = Field(
        default=EXECUTIONS_EXCHANGE,
        description="Exchange that `execution.completed` is published to.",
    )
    routing_key: AmqpName = Field(
        default=COMPLETED_KEY,
        description="Routing key of that notice; with a key that no queue is bound to, notices stay in the outbox.",
    )
    batch_size: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=500,
        description="Notices claimed and published in one go at most.",
    )
    lease_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=60,
        description=(
            "Seconds a claimed notice is left to its claimer; after a crash it waits that long to be adopted. "
            "At least 2 x `dlq_handler.broker.publish_timeout_seconds`."
        ),
    )
    poll_interval_seconds: Annotated[Seconds, Field(ge=0.05, le=3600)] = Field(
        default=2,
        description=(
            "Interval between two scans of the outbox for notices that the relay has not received directly, in seconds."
        ),
    )
    max_backoff_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=300,
        description=(
            "Longest pause, in seconds, between two attempts to publish a notice that was refused or "
            "unroutable."
        ),
    )

    @property
    def destination(self) -> Destination:
        """Of completion events."""
        return Destination(self.exchange, self.routing_key)


class ShadowOptions(OwnSection):
    """Watch, and only say what would have been done."""

    enabled: bool = Field(
        default=False,
        description=(
            "Whether copies of the letters are decided and nothing is changed or announced; the intake queue is "
            "then neither consumed nor bound."
        ),
    )
    queue: QueueName = Field(
        default="attune.dlx.shadow.queue",
        description="Our own queue for the copies, declared with the two limits below.",
    )
    max_dead_letters: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=10_000,
        description="Maximum number of unread copies that the queue keeps; older ones are dropped.",
    )
    ttl_ms: Annotated[int, Field(ge=1000, le=2**31 - 1)] = Field(
        default=3_600_000,
        description="How long, in milliseconds, the queue keeps a copy.",
    )
