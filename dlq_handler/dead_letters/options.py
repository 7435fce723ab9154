"""Settings of the intake: which queue, how many dead letters at once, when it pauses."""

from typing import Annotated

from pydantic import Field

from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.options import OwnSection, QueueName, Seconds

# basic.qos carries the prefetch count as an unsigned 16-bit number, and the window must hold two batches.
LARGEST_PREFETCH = 65_535
LARGEST_BATCH = 10_000

# The key of a dead letter is a hash and never begins like this: a copy is decided as if it were another dead letter.
SHADOW_KEY_PREFIX = "shadow:"


class IntakeOptions(OwnSection):
    """The queue that dead letters are received from, and its limits."""

    queue: QueueName = STOCK_QUEUE
    """Queue that dead letters are received from. Name a queue of dlq-handler's own (`attune.dlx.sidecar.queue`) where a
    stock executor consumes the default one too: it would receive a part of the dead letters."""
    consumer_priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 10
    """Priority of dlq-handler's consumer. The broker prefers the consumer with the highest priority only while its
    window has room."""
    defer_after_deliveries: Annotated[int, Field(ge=1, le=2**31 - 1)] = 5
    """Number of deliveries after which a dead letter that could not be decided is recorded as `deferred` and
    acknowledged; dlq-handler decides it from the record. Set it below the delivery limit of the intake queue: a
    quorum queue drops a message beyond that limit (20 by default on RabbitMQ 4)."""
    buffer_bytes: Annotated[int, Field(ge=1_048_576, le=2**40)] = 8_388_608
    """Maximum size of the dead letters held in memory, in bytes. When it is reached, the socket is not read until some
    are acknowledged."""
    stored_body_bytes: Annotated[int, Field(ge=1024, le=2**30)] = 65_536
    """Maximum size of a body on record, in bytes. A longer body is cut at this size."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=2**30)] = 1_048_576
    """Size of the largest body that is parsed whole, in bytes; parsing takes up to 25 times this much memory. Of a
    larger body only the first 64 KiB are kept and read: its stamp counts as absent, and without an `execution_id`
    there it is `unreadable`."""


class BatchOptions(OwnSection):
    """Size of the batches that are decided in one transaction."""

    size: Annotated[int, Field(ge=1, le=LARGEST_BATCH)] = 500
    """Maximum number of dead letters in one transaction. More are faster and hold row locks longer."""
    wait_ms: Annotated[int, Field(ge=0, le=60_000)] = 50
    """Time that a batch waits to fill up, in milliseconds. It is added to the latency of a single dead letter."""


class PauseOptions(OwnSection):
    """When the intake pauses."""

    database_outage_seconds: Annotated[Seconds, Field(ge=1, le=1200)] = 30
    """Duration of a database outage after which held dead letters return to the queue, in seconds. RabbitMQ itself
    takes them back after 30 minutes and closes the channel."""
