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
    """Where dead letters come in."""

    queue: QueueName = Field(
        default=STOCK_QUEUE,
        description=(
            "Queue that dead letters are taken from; name one of your own (`attune.dlx.sidecar.queue`) where "
            "a stock executor consumes the default one too, or it takes letters away from us."
        ),
    )
    consumer_priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = Field(
        default=10,
        description=(
            "Priority of our consumer; the broker prefers the higher one while its window has room, and no "
            "longer."
        ),
    )
    defer_after_deliveries: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(
        default=5,
        description=(
            "Number of deliveries after which a dead letter that could not be decided is recorded as `deferred` and "
            "acknowledged; dlq-handler decides it from the record. Set it below the delivery limit of the intake "
            "queue: a quorum queue drops a message beyond that limit (20 by default on RabbitMQ 4)."
        ),
    )
    buffer_bytes: Annotated[int, Field(ge=1_048_576, le=2**40)] = Field(
        default=8_388_608,
        description=(
            "Bytes of letters held in memory at most; when reached, what is there is settled before more is "
            "taken."
        ),
    )
    stored_body_bytes: Annotated[int, Field(ge=1024, le=2**30)] = Field(
        default=65_536,
        description=(
            "Bytes of a letter's body that are kept; a longer one is recorded cut off at this length."
        ),
    )
    max_body_bytes: Annotated[int, Field(ge=1024, le=2**30)] = Field(
        default=1_048_576,
        description=(
            "Size of the largest body that is parsed whole, in bytes; parsing takes up to 25 times this much memory. "
            "Of a larger body only the first 64 KiB are kept and read: its stamp counts as absent, and without an "
            "`execution_id` there it is `unreadable`."
        ),
    )


class BatchOptions(OwnSection):
    """How many letters one transaction takes."""

    size: Annotated[int, Field(ge=1, le=LARGEST_BATCH)] = Field(
        default=500,
        description="Letters in one transaction at most; more is faster and holds row locks longer.",
    )
    wait_ms: Annotated[int, Field(ge=0, le=60_000)] = Field(
        default=50,
        description="Milliseconds that a batch waits to fill up; the price in latency of a single letter.",
    )


class PauseOptions(OwnSection):
    """When letters are given back."""

    database_outage_seconds: Annotated[Seconds, Field(ge=1, le=1200)] = Field(
        default=30,
        description=(
            "Seconds without a database after which held letters go back to the queue; RabbitMQ itself takes "
            "them back after 30 minutes and closes the channel."
        ),
    )
