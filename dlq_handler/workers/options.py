"""Settings of how workers and their queues are recognized, and when a worker is unavailable."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import IdPattern, OwnSection, Seconds


class WorkerOptions(OwnSection):
    """Workers, their queues and their availability."""

    unavailable_after_seconds: Annotated[Seconds, Field(gt=0, le=86_400)] | None = Field(
        default=None,
        description=(
            "Time without a heartbeat after which a worker is unavailable, in seconds: a dead letter of an "
            "execution that it runs then fails it. null means the larger of 90 and 3 x "
            "`worker.heartbeat_interval`."
        ),
    )
    queue_pattern: IdPattern = Field(
        default="worker.{id}.executions",
        description=(
            "Name of a worker's queue, with {id} for the worker's id. A dead letter from any other queue is "
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
            "Interval between two comparisons of the set of workers with the bindings, in seconds. Dead letters "
            "of a new worker can be lost until its key is bound."
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
            "Time after which the host itself ends a run that has no `workflow_task.timeout_seconds`, in seconds;"
            " Attune always does after 300. With `reconnects: false`, a run is abandoned 60 s after this limit if"
            " two observations could not show whether its process still runs."
        ),
    )
    drain_queues: bool = Field(
        default=False,
        description=(
            "Drain the queue of a worker that is confirmed to be unavailable and has no consumer at once, instead"
            " of waiting for its TTL. The messages are decided like dead letters, with the reason `rescued`."
        ),
    )
