"""Settings of how workers and their queues are recognized, and when a worker is unavailable."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import IdPattern, OwnSection, Seconds


class WorkerOptions(OwnSection):
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
    drain_queues: bool = Field(
        default=False,
        description=(
            "Whether the queue of a worker that is confirmed gone, and has no consumer, is emptied by us at once "
            "instead of waiting for its TTL; its messages are decided like letters, with the reason `rescued`."
        ),
    )
