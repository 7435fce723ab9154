"""Say of an execution that waits which service has to be restarted first. Pure."""

from dlq_handler.explain.records import clock
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.worker import WorkerQueueNames, is_on_time
from dlq_handler.timeouts.case import StaleCase
from dlq_handler.workers.look import is_unattended
from dlq_handler.workers.service_look import ServiceLooks, has_reported_twice

EXECUTOR_DOES_NOT_CONSUME = (
    "the queue of scheduling requests has no consumer: restart Attune's executor, "
    "because it does not reconnect to RabbitMQ"
)


def worker_note(case: StaleCase, looks: ServiceLooks, names: WorkerQueueNames) -> str | None:
    """None: its worker consumes, does not report, or has not reported twice without a consumer."""
    worker = case.worker.row
    if case.execution.status is not ExecutionStatus.SCHEDULED or worker is None:
        return None
    if not case.worker.is_queue_known or not is_unattended(case.worker.queue):
        return None
    look = looks.by_queue.get(names.queue(worker.id)) if looks.are_current(case.now) else None
    is_reporting = is_on_time(worker, policy=case.policy.availability)
    if (
        look is None
        or not is_reporting
        or not has_reported_twice(look.first_heartbeat, worker.last_heartbeat)
    ):
        return None
    return (
        f"worker {worker.id} reports without consuming its queue since {clock(look.unconsumed_since)}: restart it, "
        "because it does not reconnect to RabbitMQ"
    )
