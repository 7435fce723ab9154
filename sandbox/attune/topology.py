"""What each stock Attune service declares in RabbitMQ when it starts, argument for argument.

Every declaration is an active one, as Attune's are: where an argument was changed it raises the
broker's PRECONDITION_FAILED. That makes `verify_redeclare` the proof that an Attune could start again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import aio_pika
from aio_pika.abc import AbstractChannel, ExchangeType
from aiormq.exceptions import ChannelNotFoundEntity

from sandbox.attune.amqp import RPC_SECONDS, open_connection

EVENTS = "attune.events"
EXECUTIONS = "attune.executions"
NOTIFICATIONS = "attune.notifications"
DLX = "attune.dlx"
DLX_QUEUE = "attune.dlx.queue"
REQUESTS_QUEUE = "attune.execution.requests.queue"
STATUS_QUEUE = "attune.execution.status.queue"
COMPLETED_QUEUE = "attune.execution.completed.queue"

DEFAULT_TTL_MS = 300_000
_LARGEST_I32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StockQueue:
    """A durable queue, neither exclusive nor auto-deleted, and its (exchange, key) bindings."""

    name: str
    bindings: tuple[tuple[str, str], ...]
    arguments: Mapping[str, str | int] = field(default_factory=lambda: {"x-dead-letter-exchange": DLX})


EXCHANGES: tuple[tuple[str, ExchangeType], ...] = (
    (EVENTS, ExchangeType.TOPIC),
    (EXECUTIONS, ExchangeType.TOPIC),
    (NOTIFICATIONS, ExchangeType.FANOUT),
    # Defect D1: a direct exchange takes '#' for a literal key, so whatever dies is dropped here.
    (DLX, ExchangeType.DIRECT),
)
DEAD_LETTER_QUEUE = StockQueue(name=DLX_QUEUE, bindings=((DLX, "#"),), arguments={})
EXECUTOR_QUEUES = (
    StockQueue(name="attune.executor.events.queue", bindings=((EVENTS, "event.created"),)),
    StockQueue(name="attune.enforcements.queue", bindings=((EXECUTIONS, "enforcement.#"),)),
    StockQueue(name=REQUESTS_QUEUE, bindings=((EXECUTIONS, "execution.requested"),)),
    StockQueue(name=STATUS_QUEUE, bindings=((EXECUTIONS, "execution.status.changed"),)),
    StockQueue(name=COMPLETED_QUEUE, bindings=((EXECUTIONS, "execution.completed"),)),
    StockQueue(name="attune.inquiry.responses.queue", bindings=((EXECUTIONS, "inquiry.responded"),)),
)
EVENTS_QUEUE = "attune.events.queue"
SENSOR_QUEUES = (StockQueue(name=EVENTS_QUEUE, bindings=((EVENTS, "#"),)),)


class WorkerQueues(StrEnum):
    """The owner of a worker's queues."""

    OWN = "own"
    """The worker, which declares them at its start, as stock Attune does."""
    FLOW = "flow"
    """A flow, which makes them before the worker consumes. The worker declares nothing."""


class QueueMissing(RuntimeError):
    """A flow owns the queue, and it does not exist."""


def worker_queue(worker_id: int | str) -> str:
    """`worker_id`: also a placeholder for one."""
    return f"worker.{worker_id}.executions"


def dispatch_key(worker_id: int | str) -> str:
    return f"execution.dispatch.worker.{worker_id}"


def worker_queues(worker_id: int | str, ttl_ms: int = DEFAULT_TTL_MS) -> tuple[StockQueue, ...]:
    if not 0 <= ttl_ms <= _LARGEST_I32:
        raise ValueError(f"worker queue TTL is {ttl_ms} ms; Attune sends it as a signed 32-bit integer")
    return (
        StockQueue(
            name=worker_queue(worker_id),
            bindings=((EXECUTIONS, dispatch_key(worker_id)),),
            arguments={"x-dead-letter-exchange": DLX, "x-message-ttl": ttl_ms},
        ),
        StockQueue(
            name=f"worker.{worker_id}.packs", bindings=((EVENTS, "pack.registered"), (EVENTS, "pack.deleted"))
        ),
        StockQueue(
            name=f"worker.{worker_id}.cancel",
            bindings=((EXECUTIONS, f"execution.cancel.worker.{worker_id}"),),
        ),
    )


async def declare_common(channel: AbstractChannel) -> None:
    """What api, executor, worker, sensor and supervisor all declare first."""
    for name, kind in EXCHANGES:
        await channel.declare_exchange(name, kind, durable=True, timeout=RPC_SECONDS)
    await _declare(channel, DEAD_LETTER_QUEUE)


async def declare_executor(channel: AbstractChannel) -> None:
    for queue in EXECUTOR_QUEUES:
        await _declare(channel, queue)


async def declare_sensor(channel: AbstractChannel) -> None:
    for queue in SENSOR_QUEUES:
        await _declare(channel, queue)


async def declare_worker(channel: AbstractChannel, worker_id: int, ttl_ms: int = DEFAULT_TTL_MS) -> None:
    for queue in worker_queues(worker_id, ttl_ms):
        await _declare(channel, queue)


async def check_worker_queues(channel: AbstractChannel, worker_id: int) -> None:
    """For a worker whose queues belong to a flow. Raises QueueMissing."""
    for queue in worker_queues(worker_id):
        try:
            await channel.declare_queue(queue.name, passive=True, timeout=RPC_SECONDS)
        except ChannelNotFoundEntity as error:
            raise QueueMissing(
                f"{queue.name} does not exist, and a flow owns it: start that flow, as with `dlq-handler flows start "
                f"ID --blueprint worker --param id={worker_id}`"
            ) from error


async def bind_dead_letters(channel: AbstractChannel, worker_id: int) -> None:
    """The cure of D1: a direct exchange passes on what dies with exactly this key."""
    queue = await channel.declare_queue(DLX_QUEUE, passive=True, timeout=RPC_SECONDS)
    await queue.bind(DLX, dispatch_key(worker_id), timeout=RPC_SECONDS)


async def verify_redeclare(amqp_url: str, workers: Mapping[int, int] | None = None) -> None:
    """Declare all of stock Attune again; `workers` maps ids to TTLs. Raises what the broker objects to."""
    connection = await open_connection(amqp_url)
    async with connection:
        channel = await connection.channel()
        await declare_common(channel)
        await declare_executor(channel)
        await declare_sensor(channel)
        for worker_id, ttl_ms in (workers or {}).items():
            await declare_worker(channel, worker_id, ttl_ms)


async def ready_count(amqp_url: str, queue: str) -> int:
    """Messages ready in `queue` right now, exact, by a passive declare on a channel of its own."""
    connection = await open_connection(amqp_url)
    async with connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, passive=True, timeout=RPC_SECONDS)
        return declared.declaration_result.message_count or 0


async def _declare(channel: AbstractChannel, queue: StockQueue) -> None:
    declared: aio_pika.abc.AbstractQueue = await channel.declare_queue(
        queue.name, durable=True, arguments=dict(queue.arguments), timeout=RPC_SECONDS
    )
    for exchange, key in queue.bindings:
        await declared.bind(exchange, key, timeout=RPC_SECONDS)
