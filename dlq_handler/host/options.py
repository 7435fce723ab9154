"""The keys of Attune's own configuration that dlq-handler reads too, with Attune's names, defaults and meaning."""

from typing import Annotated

from pydantic import Field, field_validator

from dlq_handler.broker.options import AmqpUrl
from dlq_handler.database.options import PostgresUrl
from dlq_handler.host.names import DEAD_LETTER_EXCHANGE
from dlq_handler.options import AmqpName, SchemaName, SecretUrl, SharedSection

# Attune hands the TTL to RabbitMQ as a signed 32-bit number: one more and its queues are declared with a
# negative TTL.
LARGEST_TTL_MS = 2**31 - 1
TEN_YEARS_MS = 10 * 366 * 86_400_000


class HostDatabase(SharedSection):
    """Attune's database."""

    url: PostgresUrl = SecretUrl("postgresql://postgres:postgres@localhost:5432/attune")
    """Attune's database, which also holds the schema of dlq-handler. libpq parameters such as `?sslmode=require` are
    honored."""
    schema_name: SchemaName = Field(alias="schema", default="attune")
    """Schema of Attune's tables; it leads the search_path of every transaction, because Attune's triggers fail without
    it. `null` means `attune`, as it does for Attune."""

    @field_validator("schema_name", mode="before")
    @classmethod
    def _null_means_attune(cls, value: object) -> object:
        return "attune" if value is None else value


class HostDeadLetter(SharedSection):
    """Dead letters of Attune's queues."""

    enabled: bool = True
    """Receive dead letters. When false there is no intake: an execution whose message expires stays scheduled until a
    timeout monitor finds it."""
    exchange: AmqpName = DEAD_LETTER_EXCHANGE
    """Dead-letter exchange of Attune's queues, to which the intake queue is bound."""
    ttl_ms: Annotated[int, Field(ge=1, le=TEN_YEARS_MS)] = 86_400_000
    """Retention of the record of a resolved dead letter, in milliseconds."""


class HostRabbitMQ(SharedSection):
    """Queues, as Attune's configuration has them."""

    worker_queue_ttl_ms: Annotated[int, Field(ge=1, le=LARGEST_TTL_MS)] = 300_000
    """Time that a message waits in a worker's queue before it is dead-lettered, in milliseconds. For a queue that was
    declared with more, the longer time counts."""
    dead_letter: HostDeadLetter = Field(default_factory=HostDeadLetter)


class HostMessageQueue(SharedSection):
    """Attune's RabbitMQ."""

    url: AmqpUrl = SecretUrl("amqp://guest:guest@localhost:5672/%2f")
    """Attune's broker and vhost; `dlq_handler.broker.urls` replaces it where there are several."""
    rabbitmq: HostRabbitMQ = Field(default_factory=HostRabbitMQ)


class HostExecutor(SharedSection):
    """Settings of Attune's own timeout monitor. That of dlq-handler uses the first one only."""

    scheduled_timeout: Annotated[int, Field(ge=1, le=LARGEST_TTL_MS)] = 300
    """Age at which an execution that is still scheduled is stale, in seconds. Raised, with a warning, to the queue's
    TTL plus `dlq_handler.grace.after_ttl_seconds`: before that its message can still be run."""
    timeout_check_interval: Annotated[int, Field(ge=1, le=LARGEST_TTL_MS)] = 60
    """Interval of Attune's own timeout monitor, in seconds; that of dlq-handler's is
    `dlq_handler.monitor.interval_seconds`."""
    enable_timeout_monitor: bool = True
    """Attune's own timeout monitor runs. It fails executions whose message can still be run. That of dlq-handler is
    `dlq_handler.monitor.enabled`."""


class HostWorker(SharedSection):
    """Heartbeats of Attune's workers."""

    heartbeat_interval: Annotated[int, Field(ge=1, le=86_400)] = 30
    """Interval of a worker's heartbeats, in seconds. By default a worker is unavailable after three
    missed heartbeats."""
