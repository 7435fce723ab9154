"""Builders of snapshots: stock Attune's topology, and changes to it."""

from collections.abc import Iterable, Mapping
from typing import Any

from dlq_handler.broker.admin.snapshot import BindingFacts, ConsumerFacts, ExchangeFacts, QueueFacts, Snapshot
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.host.owners import SERVICE_QUEUES, SYSTEM_QUEUES
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.drift import Expectation

DLX = "attune.dlx"
TTL_MS = 300_000
SERVICE_KEYS = {queue.name: queue.keys[0] for queue in SYSTEM_QUEUES if queue.name in SERVICE_QUEUES}


def without_default_type(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a queue was declared with: RabbitMQ 4 adds the type to the arguments where it was not named."""
    return {name: value for name, value in arguments.items() if (name, value) != ("x-queue-type", "classic")}


def a_worker_queue(worker_id: int = 7, **changes: Any) -> QueueFacts:
    fields: dict[str, Any] = {
        "name": f"worker.{worker_id}.executions",
        "arguments": {"x-dead-letter-exchange": DLX, "x-message-ttl": TTL_MS},
    }
    return QueueFacts(**(fields | changes))


def bound(source: str, destination: str, key: str = "", **changes: Any) -> BindingFacts:
    return BindingFacts(source=source, destination=destination, routing_key=key, **changes)


def dispatch_key(worker_id: int = 7) -> str:
    return f"execution.dispatch.worker.{worker_id}"


def a_stock_world(
    *,
    workers: Iterable[int] = (7,),
    queues: Iterable[QueueFacts] = (),
    bindings: Iterable[BindingFacts] = (),
    dlx: ExchangeFacts | None = None,
    intake: QueueFacts | None = None,
    consumers: Iterable[ConsumerFacts] = (),
    **changes: Any,
) -> Snapshot:
    """Attune as it declares itself: '#' on a direct exchange. `queues` replace those of the same name."""
    ids = list(workers)
    by_name = {
        queue.name: queue
        for queue in (
            intake or QueueFacts(name=STOCK_QUEUE),
            *(QueueFacts(name=name, arguments={"x-dead-letter-exchange": DLX}) for name in SERVICE_KEYS),
            *(a_worker_queue(worker) for worker in ids),
            *queues,
        )
    }
    return Snapshot(
        exchanges=[
            ExchangeFacts(name="attune.events", type="topic"),
            ExchangeFacts(name="attune.executions", type="topic"),
            dlx or ExchangeFacts(name=DLX),
        ],
        queues=by_name.values(),
        bindings=[
            bound(DLX, STOCK_QUEUE, "#"),
            *(bound("attune.executions", name, key) for name, key in SERVICE_KEYS.items()),
            *(bound("attune.executions", f"worker.{one}.executions", dispatch_key(one)) for one in ids),
            *bindings,
        ],
        consumers=consumers,
        **changes,
    )


def expectation(*workers: int, ttl_ms: int = TTL_MS, **blueprint: Any) -> Expectation:
    return Expectation(blueprint=Blueprint(**blueprint), worker_ids=frozenset(workers or (7,)), ttl_ms=ttl_ms)
