"""Settings of how workers and their queues are recognized, and when a worker is unavailable."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import IdPattern, OwnSection, Seconds


class WorkerOptions(OwnSection):
    """Workers, their queues and their availability."""

    unavailable_after_seconds: Annotated[Seconds, Field(gt=0, le=86_400)] | None = None
    """Time without a heartbeat after which a worker is unavailable, in seconds: a dead letter of an execution that it
    runs then fails it. null means the larger of 90 and 3 x `worker.heartbeat_interval`."""
    queue_pattern: IdPattern = "worker.{id}.executions"
    """Name of a worker's queue, with {id} for the worker's id. A dead letter from any other queue is unrelated unless
    it names its worker."""
    routing_key_pattern: IdPattern = "execution.dispatch.worker.{id}"
    """Routing key of a worker's queue, with {id} for the worker's id; the intake queue is bound with it for every
    worker."""
    watch_interval_seconds: Annotated[Seconds, Field(ge=0.1, le=3600)] = 2
    """Interval between two comparisons of the set of workers with the bindings, in seconds. Dead letters of a new
    worker can be lost until its key is bound."""
    reconnects: bool = True
    """Workers connect to the broker again after they lose their connection. Set it to false for Attune, whose services
    never do: a new consumer connection is then a new process, and executions that an earlier process of the same
    worker was running are abandoned. Needs the management API with the tag 'monitoring'."""
    run_limit_seconds: Annotated[Seconds, Field(gt=0, le=30 * 86_400)] = 300
    """Time after which the host itself ends a run that has no `workflow_task.timeout_seconds`, in seconds; Attune
    always does after 300. With `reconnects: false`, a run is abandoned 60 s after this limit if two observations
    could not show whether its process still runs."""
    drain_queues: bool = False
    """Drain the queue of a worker that is confirmed to be unavailable and has no consumer at once, instead of waiting
    for its TTL. The messages are decided like dead letters, with the reason `rescued`."""
