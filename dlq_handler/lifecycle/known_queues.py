"""The queues that dlq-handler knows by name: of the host's services and workers, of flows, and its own. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dlq_handler.broker.outgoing import PUBLISH_CHECK_PREFIX
from dlq_handler.broker.pubsub import QueueProperties
from dlq_handler.broker.queue_arguments import queue_arguments
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.host.owners import SYSTEM_QUEUES, OwnedQueue, owning_worker, queues_of_worker
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle.flow import Flow, FlowKind, FlowStatus
from dlq_handler.lifecycle.queue_list import Arguments, KnownQueue, OwnerKind
from dlq_handler.topology.blueprint import RETIRED_QUEUE, Blueprint
from dlq_handler.topology.canary import CANARY_QUEUE
from dlq_handler.topology.plan import OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNames:
    """Where the settings put the queues of host and dlq-handler."""

    blueprint: Blueprint
    shadow_queue: str
    canary: Arguments | None
    """Arguments of the canary queue; None: no canaries are sent."""

    @property
    def workers(self) -> WorkerQueueNames:
        return self.blueprint.workers


def known_queues(names: QueueNames, worker_ids: Iterable[int]) -> tuple[KnownQueue, ...]:
    """In the order in which they matter. `worker_ids` in the order in which their queues are likely to exist."""
    return (
        *(
            _of_service(queue, queue.service, names, is_required=not queue.is_optional)
            for queue in SYSTEM_QUEUES
        ),
        *_own(names),
        *(queue for worker_id in worker_ids for queue in _of_worker(worker_id, names)),
    )


def queues_of_flows(flows: Iterable[Flow]) -> Iterator[KnownQueue]:
    """The queues of live flows, and those that stops could not delete."""
    for flow in flows:
        is_flow = flow.kind is FlowKind.FLOW
        for queue in flow.queues:
            is_leaked = queue.name in flow.leaked
            # The queues of a retired worker stay the worker's.
            if is_leaked or (is_flow and flow.status.is_live):
                yield KnownQueue(
                    name=queue.name,
                    owner_kind=OwnerKind.FLOW if is_flow else OwnerKind.SERVICE,
                    owner=flow.id if is_flow or flow.worker_id is None else worker_name(flow.worker_id),
                    arguments=queue_arguments(queue.properties),
                    has_any_ttl=not is_flow,
                    is_required=is_flow and flow.status is FlowStatus.ACTIVE,
                    is_leaked=is_leaked,
                )
        for queue in flow.shared if is_flow and flow.status.is_live else ():
            yield KnownQueue(
                name=queue.name,
                owner_kind=OwnerKind.FLOW,
                owner=f"blueprint {flow.blueprint}",
                arguments=queue_arguments(queue.properties),
                is_required=flow.status is FlowStatus.ACTIVE,
            )


def recognize(name: str, names: QueueNames) -> KnownQueue | None:
    """A queue of a worker without a row, or one of dlq-handler that lives only for a moment."""
    if name.startswith(PUBLISH_CHECK_PREFIX):
        return _ours(name)
    worker_id = owning_worker(name, names.workers)
    if worker_id is None:
        return None
    return next((queue for queue in _of_worker(worker_id, names) if queue.name == name), None)


def _own(names: QueueNames) -> Iterable[KnownQueue]:
    blueprint = names.blueprint
    for queue in blueprint.queues:
        if queue != STOCK_QUEUE:
            yield _ours(queue, blueprint.arguments_of(queue), is_required=True)
    if names.shadow_queue not in blueprint.queues:
        yield _ours(names.shadow_queue)
    yield _ours(CANARY_QUEUE, names.canary)
    yield _ours(RETIRED_QUEUE, {})


def _ours(
    name: str, arguments: Mapping[str, object] | None = None, *, is_required: bool = False
) -> KnownQueue:
    return KnownQueue(
        name=name, owner_kind=OwnerKind.SERVICE, owner=OURS, arguments=arguments, is_required=is_required
    )


def _of_worker(worker_id: int, names: QueueNames) -> Iterable[KnownQueue]:
    for queue in queues_of_worker(worker_id, names.workers):
        yield _of_service(queue, worker_name(worker_id), names)


def worker_name(worker_id: int) -> str:
    """As the owner of its queues."""
    return f"worker {worker_id}"


def _of_service(queue: OwnedQueue, owner: str, names: QueueNames, *, is_required: bool = False) -> KnownQueue:
    dlx = names.blueprint.dead_letter_exchange if queue.dlx is not None else None
    return KnownQueue(
        name=queue.name,
        owner_kind=OwnerKind.SERVICE,
        owner=owner,
        arguments=queue_arguments(QueueProperties(ttl_ms=queue.ttl_ms, dlx=dlx)),
        has_any_ttl=queue.ttl_ms is not None,
        is_required=is_required,
    )
