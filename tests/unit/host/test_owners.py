"""The table of owners is what stock Attune's services declare, argument for argument."""

import pytest

from dlq_handler.broker.queue_arguments import queue_arguments
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.host.owners import (
    SERVICE_QUEUES,
    SYSTEM_QUEUES,
    HostService,
    OwnedQueue,
    owning_worker,
    queues_of_worker,
)
from dlq_handler.host.worker import WorkerQueueNames
from sandbox.attune import topology as stock


def as_declared(queue: OwnedQueue) -> stock.StockQueue:
    return stock.StockQueue(
        name=queue.name,
        bindings=tuple((queue.exchange, key) for key in queue.keys),
        arguments=queue_arguments(queue.properties),
    )


@pytest.mark.parametrize(
    ("service", "declared"),
    [
        (HostService.COMMON, (stock.DEAD_LETTER_QUEUE,)),
        (HostService.EXECUTOR, stock.EXECUTOR_QUEUES),
        (HostService.SENSOR, stock.SENSOR_QUEUES),
    ],
)
def test_a_service_owns_the_queues_that_it_declares(
    service: HostService, declared: tuple[stock.StockQueue, ...]
) -> None:
    assert tuple(as_declared(queue) for queue in SYSTEM_QUEUES if queue.service is service) == declared


def test_a_worker_owns_three_queues() -> None:
    assert tuple(map(as_declared, queues_of_worker(7))) == stock.worker_queues(7)
    assert {queue.service for queue in queues_of_worker(7)} == {HostService.WORKER}


def test_the_queue_that_no_service_declares_has_no_owner() -> None:
    """The source document names it; on a real host it does not exist, so its absence must not be reported."""
    assert "attune.notifications.queue" not in {queue.name for queue in SYSTEM_QUEUES}


def test_service_queues_are_the_system_queues_that_dead_letter() -> None:
    assert set(SERVICE_QUEUES) == {queue.name for queue in SYSTEM_QUEUES} - {STOCK_QUEUE}


@pytest.mark.parametrize("kind", ["executions", "packs", "cancel"])
def test_a_worker_queue_shows_its_worker(kind: str) -> None:
    assert owning_worker(f"worker.7.{kind}") == 7


@pytest.mark.parametrize(
    "name", ["worker.7.other", "worker.x.packs", "worker..cancel", "attune.events.queue"]
)
def test_any_other_queue_belongs_to_no_worker(name: str) -> None:
    assert owning_worker(name) is None


def test_a_host_may_name_its_dispatch_queues_otherwise() -> None:
    names = WorkerQueueNames(queue_pattern="agent-{id}", routing_key_pattern="run.{id}")
    assert owning_worker("agent-7", names) == 7
    assert owning_worker("worker.7.executions", names) is None
    [dispatches, *_] = queues_of_worker(7, names, ttl_ms=1000)
    assert (dispatches.name, dispatches.keys, dispatches.ttl_ms) == ("agent-7", ("run.7",), 1000)
