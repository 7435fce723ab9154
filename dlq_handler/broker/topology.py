"""Make what must exist exist, and bind the intake queue with each worker's key.

Never redeclares what is there and never touches anything else: exchanges and queues are looked at passively
first and declared, exactly as Attune's services would, only when missing. So Attune's own declares succeed
after us as before us. A dead-letter exchange of another type is used as it is and reported.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from aiormq.exceptions import ChannelInvalidStateError

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.queue_probe import QueueCounts, count, exchange_exists, probe_exchange_type
from dlq_handler.domain.topology import (
    STOCK_BINDING_KEY,
    STOCK_QUEUE,
    Binding,
    Blueprint,
    superseded_bindings,
    wanted_bindings,
)

# So many bindings go out without waiting before the broker is asked whether it took them. RabbitMQ writes
# some hundreds of durable bindings in a second, so a chunk fits well into its time limit.
_CHUNK = 500
_CHUNK_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What one pass found, made and bound."""

    found: tuple[str, ...]
    made: tuple[str, ...]
    bound: frozenset[Binding]
    unbound: frozenset[Binding]
    dead_letter_exchange_type: str | None
    intake: QueueCounts | None


async def apply(link: AdminLink, blueprint: Blueprint, worker_ids: Collection[int]) -> Applied:
    """Bring the broker to the blueprint for these workers. Safe to repeat, and for two replicas at once."""
    found: list[str] = []
    made: list[str] = []
    for exchange in blueprint.exchanges:
        if await exchange_exists(link, exchange.name):
            found.append(exchange.name)
            continue
        async with link.channel(f"declare exchange {exchange.name!r}") as channel:
            await channel.exchange_declare(exchange.name, exchange_type=exchange.type, durable=True)
        made.append(exchange.name)
    for queue in blueprint.queues:
        if await count(link, queue) is not None:
            found.append(queue)
            continue
        async with link.channel(f"declare queue {queue!r}") as channel:
            await channel.queue_declare(queue, durable=True, arguments={**blueprint.arguments_of(queue)})
        made.append(queue)
    exchange_type = await probe_exchange_type(link, blueprint.dead_letter_exchange, "direct")
    await _bind_as_stock(link, blueprint, made, exchange_type)
    wanted = wanted_bindings(blueprint, worker_ids)
    await bind(link, blueprint, wanted)
    # After the new ones: in between a letter is delivered twice, which is harmless; the other way round it is
    # lost.
    superseded = superseded_bindings(blueprint, worker_ids)
    await unbind(link, blueprint, superseded)
    return Applied(
        found=tuple(found),
        made=tuple(made),
        bound=wanted,
        unbound=superseded,
        dead_letter_exchange_type=exchange_type,
        intake=await count(link, blueprint.intake_queue),
    )


async def _bind_as_stock(
    link: AdminLink, blueprint: Blueprint, made: Collection[str], exchange_type: str | None
) -> None:
    """Complete what we made: Attune binds its queue with '#', which on its direct exchange is a literal key.

    On an exchange of another type that key would bring every letter into the stock queue, so there it is left
    to Attune. In shadow mode the queue is none of our business.
    """
    if blueprint.shadow is not None:
        return
    if exchange_type == "direct" and not {STOCK_QUEUE, blueprint.dead_letter_exchange}.isdisjoint(made):
        await bind(link, blueprint, [Binding(queue=STOCK_QUEUE, routing_key=STOCK_BINDING_KEY)])


async def bind(link: AdminLink, blueprint: Blueprint, bindings: Collection[Binding]) -> None:
    """Make the bindings, without a round trip for each. A queue or exchange that is gone is `Unavailable`."""
    for chunk in _chunks(sorted(bindings)):
        async with link.channel("bind the intake queue", timeout_seconds=_CHUNK_TIMEOUT_SECONDS) as channel:
            try:
                for binding in chunk:
                    await channel.queue_bind(
                        binding.queue, blueprint.dead_letter_exchange, binding.routing_key, nowait=True
                    )
                # The broker works in order: its answer to this call says that it took all of the above.
                await channel.queue_declare(chunk[-1].queue, passive=True)
            except ChannelInvalidStateError:
                # The channel was closed under us. Why is known a moment later, and is what the operator needs.
                await channel.closing
                raise


async def unbind(link: AdminLink, blueprint: Blueprint, bindings: Collection[Binding]) -> None:
    """Remove the bindings; one that is not there is fine. AMQP has no unbind without an answer."""
    for chunk in _chunks(sorted(bindings)):
        async with link.channel("unbind keys", timeout_seconds=_CHUNK_TIMEOUT_SECONDS) as channel:
            for binding in chunk:
                await channel.queue_unbind(binding.queue, blueprint.dead_letter_exchange, binding.routing_key)


def _chunks(bindings: Iterable[Binding]) -> Iterator[list[Binding]]:
    rest = iter(bindings)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
