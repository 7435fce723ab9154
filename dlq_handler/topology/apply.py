"""Declare missing exchanges and queues, and bind the intake queue with each worker's key.

Existing exchanges and queues are only checked passively. Missing ones are declared exactly as Attune's services
declare them, so Attune's own declarations succeed before and after it. A dead-letter exchange of another type is used
as it is and reported. Nothing else is touched.

On request also the queue of a worker: durable, not auto-delete, with TTL and dead-letter exchange. A queue that differs
is refused: worker queues with two TTLs, or a queue that makes Attune's own declaration fail, are worse than a missing
queue.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from dlq_handler.broker.admin.admin_connection import AdminConnection, reason_of_close
from dlq_handler.broker.admin.queue_probe import (
    QueueCounts,
    count_queue,
    exchange_exists,
    probe_exchange_type,
    probe_queue,
    probe_ttl_ms,
)
from dlq_handler.broker.admin.snapshot import DEAD_LETTER_EXCHANGE_ARGUMENT, TTL_ARGUMENT
from dlq_handler.host.names import STOCK_BINDING_KEY, STOCK_QUEUE
from dlq_handler.host.options import LARGEST_TTL_MS
from dlq_handler.topology.blueprint import (
    Binding,
    Blueprint,
    bindings_of_workers,
    superseded_bindings,
    wanted_bindings,
)

# Number of bindings that are sent without waiting before one reply is awaited. RabbitMQ writes some hundreds of durable
# bindings a second, so a chunk fits well into its time limit.
_CHUNK = 500
_CHUNK_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """The objects that existed, and the changes."""

    found: tuple[str, ...]
    made: tuple[str, ...]
    bound: frozenset[Binding]
    dead_letter_exchange_type: str | None
    intake: QueueCounts | None


async def apply(admin: AdminConnection, blueprint: Blueprint, worker_ids: Collection[int]) -> ApplyResult:
    """Bring the broker to the blueprint for these workers. Safe to repeat, and for two replicas at once."""
    found: list[str] = []
    made: list[str] = []
    for exchange in blueprint.exchanges:
        if await exchange_exists(admin, exchange.name):
            found.append(exchange.name)
            continue
        async with admin.channel(f"declare exchange {exchange.name!r}") as channel:
            await channel.exchange_declare(exchange.name, exchange_type=exchange.type, durable=True)
        made.append(exchange.name)
    for queue in blueprint.queues:
        if await count_queue(admin, queue) is not None:
            found.append(queue)
            continue
        async with admin.channel(f"declare queue {queue!r}") as channel:
            await channel.queue_declare(queue, durable=True, arguments={**blueprint.arguments_of(queue)})
        made.append(queue)
    exchange_type = await probe_exchange_type(admin, blueprint.dead_letter_exchange, "direct")
    await _bind_as_stock(admin, blueprint, made, exchange_type)
    wanted = wanted_bindings(blueprint, worker_ids)
    await bind(admin, blueprint, wanted)
    # After the new ones: a dead letter may then be delivered twice, which is harmless. The other order may lose it.
    await unbind(admin, blueprint, superseded_bindings(blueprint, worker_ids))
    return ApplyResult(
        found=tuple(found),
        made=tuple(made),
        bound=wanted,
        dead_letter_exchange_type=exchange_type,
        intake=await count_queue(admin, blueprint.intake_queue),
    )


async def _bind_as_stock(
    admin: AdminConnection, blueprint: Blueprint, made: Collection[str], exchange_type: str | None
) -> None:
    """Bind a new stock queue or exchange as Attune does: with '#', which is a literal key on its direct exchange.

    On an exchange of another type that key would bring every dead letter into the stock queue, so there it is left to
    Attune. In shadow mode the stock queue is not touched.
    """
    if blueprint.shadow is not None:
        return
    if exchange_type == "direct" and not {STOCK_QUEUE, blueprint.dead_letter_exchange}.isdisjoint(made):
        await bind(admin, blueprint, [Binding(queue=STOCK_QUEUE, routing_key=STOCK_BINDING_KEY)])


async def bind(admin: AdminConnection, blueprint: Blueprint, bindings: Collection[Binding]) -> None:
    """Add the bindings, without a round trip for each. Raises `Unavailable` for a missing queue or exchange."""
    for chunk in _chunks(sorted(bindings)):
        async with (
            admin.channel("bind the intake queue", timeout_seconds=_CHUNK_TIMEOUT_SECONDS) as channel,
            reason_of_close(channel),
        ):
            for binding in chunk:
                await channel.queue_bind(
                    binding.queue, blueprint.dead_letter_exchange, binding.routing_key, nowait=True
                )
            # The broker works in order: its reply to this call shows that it has taken all bindings before it.
            await channel.queue_declare(chunk[-1].queue, passive=True)


async def unbind(admin: AdminConnection, blueprint: Blueprint, bindings: Collection[Binding]) -> None:
    """Remove the bindings, if they exist. AMQP has no unbind without a reply."""
    for chunk in _chunks(sorted(bindings)):
        async with admin.channel("unbind keys", timeout_seconds=_CHUNK_TIMEOUT_SECONDS) as channel:
            for binding in chunk:
                await channel.queue_unbind(binding.queue, blueprint.dead_letter_exchange, binding.routing_key)


def _chunks(bindings: Iterable[Binding]) -> Iterator[list[Binding]]:
    rest = iter(bindings)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


class WorkerQueueRefused(Exception):
    """The queue was not declared; the text names what exists, what is wanted, and what to do."""


async def declare_worker_queue(
    admin: AdminConnection,
    blueprint: Blueprint,
    worker_id: int,
    *,
    ttl_ms: int,
    compare_with: Collection[int] = (),
) -> bool:
    """True: declared. False: it existed as wanted.

    `compare_with`: ids of other workers, whose queues must have the same TTL.
    """
    if not 1 <= ttl_ms <= LARGEST_TTL_MS:
        raise WorkerQueueRefused(
            f"Invalid TTL {ttl_ms} ms: Attune's services can declare 1 to {LARGEST_TTL_MS}"
        )
    for other in sorted(compare_with):
        await _refuse_other_ttl(admin, blueprint.workers.queue(other), ttl_ms)
    queue = blueprint.workers.queue(worker_id)
    if await count_queue(admin, queue) is not None:
        await _refuse_unlike(admin, blueprint, queue, ttl_ms)
        return False
    # The bindings first: dead letters of the new queue need them.
    if blueprint.has_intake:
        await bind(admin, blueprint, bindings_of_workers(blueprint, [worker_id]))
    async with admin.channel(f"declare queue {queue!r}") as channel:
        await channel.queue_declare(
            queue,
            durable=True,
            arguments={
                DEAD_LETTER_EXCHANGE_ARGUMENT: blueprint.dead_letter_exchange,
                TTL_ARGUMENT: ttl_ms,
            },
        )
        await channel.queue_bind(
            queue, blueprint.executions_exchange, blueprint.workers.routing_key(worker_id)
        )
    return True


async def _refuse_other_ttl(admin: AdminConnection, queue: str, ttl_ms: int) -> None:
    current = await probe_ttl_ms(admin, queue)
    if current is not None and current != ttl_ms:
        raise WorkerQueueRefused(
            f"queue {queue!r} has x-message-ttl={current}, wanted was {ttl_ms}; arguments are fixed at "
            f"creation: ask for {current}, or drain and delete the existing queues first"
        )


async def _refuse_unlike(admin: AdminConnection, blueprint: Blueprint, queue: str, ttl_ms: int) -> None:
    wanted = {DEAD_LETTER_EXCHANGE_ARGUMENT: blueprint.dead_letter_exchange, TTL_ARGUMENT: ttl_ms}
    probed = await probe_queue(admin, queue)
    if probed is None:
        raise WorkerQueueRefused(f"queue {queue!r} exists, but this user may not see its arguments")
    for name, value in wanted.items():
        if probed.arguments.get(name) != value:
            raise WorkerQueueRefused(
                f"queue {queue!r} exists with {name}={probed.arguments.get(name)!r}, wanted was {value!r}; "
                "arguments are fixed at creation: drain and delete it first"
            )
    if probed.auto_delete or not probed.durable:
        raise WorkerQueueRefused(
            f"queue {queue!r} exists with durable={probed.durable}, auto_delete={probed.auto_delete}, wanted "
            "was a durable queue that is not auto-delete: drain and delete it first"
        )
