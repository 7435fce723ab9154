"""`dlq_handler:` settings of the servers we talk to, and of what is written and published there."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import NoDecode

from dlq_handler.options import AmqpName, Listed, OwnSection, Seconds
from dlq_handler.settings.urls import AmqpUrl, HttpUrl


class Broker(OwnSection):
    """How RabbitMQ is reached."""

    # NoDecode: a variable may hold a plain comma list, which pydantic-settings would refuse as broken JSON.
    urls: Annotated[tuple[AmqpUrl, ...], NoDecode, Listed] = Field(
        default=(),
        description=(
            "Brokers of one cluster, tried in turn when one is lost; empty means `message_queue.url` alone. "
            "In a variable: a JSON array or a comma list."
        ),
    )
    management_url: HttpUrl | None = Field(
        default=None,
        description=(
            "RabbitMQ's management API; null means the first broker's host and credentials on port 15672 "
            "(15671 and https for amqps)."
        ),
    )
    heartbeat_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(
        default=10,
        description=(
            "Seconds between AMQP heartbeats; a connection that hangs half-open is noticed after about three."
        ),
    )
    connect_timeout_seconds: Annotated[Seconds, Field(ge=0.1, le=600)] = Field(
        default=5,
        description="Seconds one attempt to connect may take before the next broker is tried.",
    )
    publish_timeout_seconds: Annotated[Seconds, Field(ge=0.1, le=3600)] = Field(
        default=10,
        description=(
            "Seconds the broker has to confirm a notice; later it counts as not published and is tried again."
        ),
    )


class DatabaseUse(OwnSection):
    """How PostgreSQL is used."""

    pool_size: Annotated[int, Field(ge=2, le=1000)] = Field(
        default=8,
        description=(
            "Connections held at most; two batches, the relay, the scans and the watches need one each at a "
            "time."
        ),
    )
    connect_timeout_seconds: Annotated[Seconds, Field(ge=0.1, le=600)] = Field(
        default=5,
        description="Seconds one attempt to connect may take before the database counts as away.",
    )
    statement_timeout_ms: Annotated[int, Field(ge=100, le=2**31 - 1)] = Field(
        default=30_000,
        description=(
            "Milliseconds one statement may run; longer counts as our trouble, and the batch is tried again."
        ),
    )
    lock_timeout_ms: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(
        default=2000,
        description=(
            "Milliseconds to wait for a lock that cannot be skipped, on a table or on our own records; "
            "then the whole batch is tried again. Executions that another session holds are not waited for: "
            "their letters are held over."
        ),
    )


class Outbox(OwnSection):
    """How notices are published."""

    exchange: AmqpName = Field(
        default="attune.executions",
        description="Exchange that `execution.completed` is published to.",
    )
    routing_key: AmqpName = Field(
        default="execution.completed",
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
        default=1,
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


class Retention(OwnSection):
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
    scan_interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=300,
        description="Every how many seconds records past their time are removed.",
    )
