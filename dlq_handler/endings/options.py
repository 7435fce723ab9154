"""Settings of the outbox and of shadow mode, and what is the same for every record of a replica."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from dlq_handler.host.messages import Destination
from dlq_handler.host.names import COMPLETED_KEY, EXECUTIONS_EXCHANGE
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.options import AmqpName, OwnSection, QueueName, Seconds


class OutboxOptions(OwnSection):
    """Publishing of completion events."""

    exchange: AmqpName = EXECUTIONS_EXCHANGE
    """Exchange that `execution.completed` is published to."""
    routing_key: AmqpName = COMPLETED_KEY
    """Routing key of that event. With a key that no queue is bound to, completion events stay in the outbox."""
    batch_size: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Maximum number of completion events that are claimed and published together."""
    lease_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = 60
    """Time for which a replica claims a completion event, in seconds; after a crash it is reclaimed when this time is
    over. At least 2 x `dlq_handler.broker.publish_timeout_seconds`."""
    poll_interval_seconds: Annotated[Seconds, Field(ge=0.05, le=3600)] = 2
    """Interval between two scans of the outbox for completion events that the relay has not received directly, in
    seconds."""
    max_backoff_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = 300
    """Maximum pause between two attempts to publish a completion event that was refused or unroutable, in seconds."""

    @property
    def destination(self) -> Destination:
        """Of completion events."""
        return Destination(self.exchange, self.routing_key)


class ShadowOptions(OwnSection):
    """Shadow mode (dry run): decide copies, change nothing."""

    enabled: bool = False
    """Enable shadow mode (dry run): copies of the dead letters are decided, no execution is changed, and no event is
    published. The intake queue is then neither consumed nor bound."""
    queue: QueueName = "attune.dlx.shadow.queue"
    """Queue of dlq-handler's own for the copies, declared with the two limits below."""
    max_dead_letters: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    """Maximum number of copies in the queue. The broker drops older ones."""
    ttl_ms: Annotated[int, Field(ge=1000, le=2**31 - 1)] = 3_600_000
    """Time that the queue keeps a copy, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    replica: str
    destination: Destination
    """Of completion events."""
    names: WorkerQueueNames = field(default_factory=WorkerQueueNames)
    is_shadow: bool = False
    """True: the records say what would have been done."""
