"""Attune's queues as data: the service that declares each of them, its bindings, and its arguments.

The table is that of the source document (attune/docs/architecture/queue-ownership.md), corrected by what Attune's
services really declare: workers' queues are durable and never auto-delete, each worker also has a queue for packs and
one for cancel requests, the executor has a queue for events, and no service declares `attune.notifications.queue`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from dlq_handler.broker.pubsub import QueueProperties, QueueTopic
from dlq_handler.host.names import (
    CANCEL_KEY_PATTERN,
    COMPLETED_KEY,
    COMPLETED_QUEUE,
    DEAD_LETTER_EXCHANGE,
    ENFORCEMENTS_PATTERN,
    ENFORCEMENTS_QUEUE,
    EVENTS_EXCHANGE,
    EXECUTIONS_EXCHANGE,
    INQUIRY_RESPONDED_KEY,
    REQUESTED_KEY,
    REQUESTS_QUEUE,
    STATUS_CHANGED_KEY,
    STOCK_BINDING_KEY,
    STOCK_QUEUE,
)
from dlq_handler.host.worker import WorkerQueueNames, id_in

STOCK_WORKER_TTL_MS = 300_000
"""The TTL with which every stock worker declares its queue, whatever its configuration says."""


class HostService(StrEnum):
    """The part of Attune that declares a queue at its start."""

    COMMON = "common"
    """Each of api, executor, worker, sensor and supervisor."""
    EXECUTOR = "executor"
    SENSOR = "sensor"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedQueue:
    """A queue as its service declares it: durable, not exclusive, not auto-delete, of the default type.

    In a worker's queue, name and keys may hold `{id}`.
    """

    name: str
    service: HostService
    exchange: str
    keys: tuple[str, ...]
    dlx: str | None = DEAD_LETTER_EXCHANGE
    ttl_ms: int | None = None
    is_optional: bool = False
    """Its service runs on some hosts only, so its absence alone is no problem."""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(str(QueueTopic(exchange=self.exchange, routing_key=key)) for key in self.keys)

    @property
    def properties(self) -> QueueProperties:
        return QueueProperties(ttl_ms=self.ttl_ms, dlx=self.dlx)

    def of_worker(self, worker_id: int) -> "OwnedQueue":
        return replace(
            self,
            name=_fill(self.name, worker_id),
            keys=tuple(_fill(key, worker_id) for key in self.keys),
        )


SYSTEM_QUEUES = (
    OwnedQueue(
        name=STOCK_QUEUE,
        service=HostService.COMMON,
        exchange=DEAD_LETTER_EXCHANGE,
        keys=(STOCK_BINDING_KEY,),
        dlx=None,
    ),
    OwnedQueue(
        name="attune.executor.events.queue",
        service=HostService.EXECUTOR,
        exchange=EVENTS_EXCHANGE,
        keys=("event.created",),
    ),
    OwnedQueue(
        name=ENFORCEMENTS_QUEUE,
        service=HostService.EXECUTOR,
        exchange=EXECUTIONS_EXCHANGE,
        keys=(ENFORCEMENTS_PATTERN,),
    ),
    OwnedQueue(
        name=REQUESTS_QUEUE,
        service=HostService.EXECUTOR,
        exchange=EXECUTIONS_EXCHANGE,
        keys=(REQUESTED_KEY,),
    ),
    OwnedQueue(
        name="attune.execution.status.queue",
        service=HostService.EXECUTOR,
        exchange=EXECUTIONS_EXCHANGE,
        keys=(STATUS_CHANGED_KEY,),
    ),
    OwnedQueue(
        name=COMPLETED_QUEUE,
        service=HostService.EXECUTOR,
        exchange=EXECUTIONS_EXCHANGE,
        keys=(COMPLETED_KEY,),
    ),
    OwnedQueue(
        name="attune.inquiry.responses.queue",
        service=HostService.EXECUTOR,
        exchange=EXECUTIONS_EXCHANGE,
        keys=(INQUIRY_RESPONDED_KEY,),
    ),
    OwnedQueue(
        name="attune.events.queue",
        service=HostService.SENSOR,
        exchange=EVENTS_EXCHANGE,
        keys=("#",),
        is_optional=True,
    ),
)
"""They exist as long as Attune does: each is declared at every start of its service, and never deleted."""

SERVICE_QUEUES = tuple(queue.name for queue in SYSTEM_QUEUES if queue.dlx is not None)
"""Queues in which Attune's services reject messages to the dead-letter exchange."""


def worker_queues(
    names: WorkerQueueNames | None = None, *, ttl_ms: int = STOCK_WORKER_TTL_MS
) -> tuple[OwnedQueue, ...]:
    """What each worker declares when it registers, and Attune never deletes. The first is for dispatches."""
    names = names or WorkerQueueNames()
    return (
        OwnedQueue(
            name=names.queue_pattern,
            service=HostService.WORKER,
            exchange=EXECUTIONS_EXCHANGE,
            keys=(names.routing_key_pattern,),
            ttl_ms=ttl_ms,
        ),
        OwnedQueue(
            name="worker.{id}.packs",
            service=HostService.WORKER,
            exchange=EVENTS_EXCHANGE,
            keys=("pack.registered", "pack.deleted"),
        ),
        OwnedQueue(
            name="worker.{id}.cancel",
            service=HostService.WORKER,
            exchange=EXECUTIONS_EXCHANGE,
            keys=(CANCEL_KEY_PATTERN,),
        ),
    )


def queues_of_worker(
    worker_id: int, names: WorkerQueueNames | None = None, *, ttl_ms: int = STOCK_WORKER_TTL_MS
) -> tuple[OwnedQueue, ...]:
    return tuple(queue.of_worker(worker_id) for queue in worker_queues(names, ttl_ms=ttl_ms))


def owning_worker(queue: str, names: WorkerQueueNames | None = None) -> int | None:
    """The id of the worker whose queue this is: for dispatches, packs or cancel requests. None: any other queue."""
    return next(_worker_ids(queue, names), None)


def _worker_ids(queue: str, names: WorkerQueueNames | None) -> Iterator[int]:
    for owned in worker_queues(names):
        worker_id = id_in(queue, owned.name)
        if worker_id is not None:
            yield worker_id


def _fill(pattern: str, worker_id: int) -> str:
    return pattern.replace("{id}", str(worker_id))
