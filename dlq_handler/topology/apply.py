"""Declare missing exchanges and queues, and bind the intake queue with each worker's key.

Existing exchanges and queues are only checked passively. Missing ones are declared exactly as Attune's services
declare them, so Attune's own declarations succeed before and after it. A dead-letter exchange of another type is used
as it is and reported. Nothing else is touched.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import (
    QueueCounts,
    count_queue,
    exchange_exists,
    probe_exchange_type,
)
from dlq_handler.broker.client.broker_errors import ChannelInvalidStateError
from dlq_handler.host.names import STOCK_BINDING_KEY, STOCK_QUEUE
from dlq_handler.topology.blueprint import Binding, Blueprint, superseded_bindings, wanted_bindings

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
        async with admin.channel("bind the intake queue", timeout_seconds=_CHUNK_TIMEOUT_SECONDS) as channel:
            try:
                for binding in chunk:
                    await channel.queue_bind(
                        binding.queue, blueprint.dead_letter_exchange, binding.routing_key, nowait=True
                    )
                # The broker works in order: its reply to this call shows that it has taken all bindings before it.
                await channel.queue_declare(chunk[-1].queue, passive=True)
            except ChannelInvalidStateError:
                # The broker closed the channel. Its reason is known a moment later, and the operator needs it.
                await channel.closing
                raise


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
