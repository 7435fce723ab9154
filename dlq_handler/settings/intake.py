"""`dlq_handler:` settings of the way in: which queue, how much at once, which workers."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import IdPattern, OwnSection, QueueName, Seconds

# basic.qos carries the prefetch count as an unsigned 16-bit number, and the window must hold two batches.
LARGEST_PREFETCH = 65_535
LARGEST_BATCH = 10_000


class Intake(OwnSection):
    """Where dead letters come in."""

    queue: QueueName = Field(
        default="attune.dlx.queue",
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
    max_bytes: Annotated[int, Field(ge=1_048_576, le=2**40)] = Field(
        default=8_388_608,
        description=(
            "Bytes of letters held in memory at most; when reached, what is there is settled before more is "
            "taken."
        ),
    )
    body_limit_bytes: Annotated[int, Field(ge=1024, le=2**30)] = Field(
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


class Batch(OwnSection):
    """How many letters one transaction takes."""

    size: Annotated[int, Field(ge=1, le=LARGEST_BATCH)] = Field(
        default=500,
        description="Letters in one transaction at most; more is faster and holds row locks longer.",
    )
    wait_ms: Annotated[int, Field(ge=0, le=60_000)] = Field(
        default=50,
        description="Milliseconds that a batch waits to fill up; the price in latency of a single letter.",
    )


class WorkerWatch(OwnSection):
    """How workers and their queues are recognised."""

    unavailable_after_seconds: Annotated[Seconds, Field(gt=0, le=86_400)] | None = Field(
        default=None,
        description=(
            "Seconds without a heartbeat after which a worker counts as unavailable, so that a letter of a "
            "running execution fails it; null means the larger of 90 and 3 x `worker.heartbeat_interval`."
        ),
    )
    queue_pattern: IdPattern = Field(
        default="worker.{id}.executions",
        description=(
            "Name of a worker's queue, with {id} for the worker's id; a letter from any other queue is "
            "unrelated unless it names its worker."
        ),
    )
    routing_key_pattern: IdPattern = Field(
        default="execution.dispatch.worker.{id}",
        description=(
            "Routing key of a worker's queue, with {id} for the worker's id; the intake queue is bound with "
            "it for every worker."
        ),
    )
    watch_interval_seconds: Annotated[Seconds, Field(ge=0.1, le=3600)] = Field(
        default=2,
        description=(
            "Every how many seconds the set of workers is compared; messages of a new worker can be lost "
            "until it was seen."
        ),
    )
    reconnects: bool = Field(
        default=True,
        description=(
            "Workers connect to the broker again after they lose their connection. Set it to false for Attune, whose "
            "services never do: a new consumer connection is then a new process, and executions that an earlier "
            "process of the same worker was running are abandoned. Needs the management API with the tag 'monitoring'."
        ),
    )
    run_limit_seconds: Annotated[Seconds, Field(gt=0, le=30 * 86_400)] = Field(
        default=300,
        description=(
            "Seconds after which the host itself ends a run that has no `workflow_task.timeout_seconds`; Attune always "
            "does after 300. With `reconnects: false`, a run of which it is unknown in two looks whether its process "
            "still runs is abandoned 60 s after this limit."
        ),
    )
    rescue: bool = Field(
        default=False,
        description=(
            "Whether the queue of a worker that is confirmed gone, and has no consumer, is emptied by us at once "
            "instead of waiting for its TTL; its messages are decided like letters, with the reason `rescued`."
        ),
    )


class Topology(OwnSection):
    """How exchanges, queues and bindings are kept."""

    reapply_interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=600,
        description=(
            "Every how many seconds all bindings are made again, which repairs a broker that was wiped."
        ),
    )


class Pause(OwnSection):
    """When letters are given back."""

    database_away_seconds: Annotated[Seconds, Field(ge=1, le=1200)] = Field(
        default=30,
        description=(
            "Seconds without a database after which held letters go back to the queue; RabbitMQ itself takes "
            "them back after 30 minutes and closes the channel."
        ),
    )
