"""Find the rights that the broker user lacks, by calls that can never succeed, so that none of them changes anything.

RabbitMQ checks the right first and the call afterwards. A declare, a consume or a publish that carries a value of a
wrong type is refused with 403 if the right is missing, and with 406 or 404 if it is there. Removing a binding that
does not exist is allowed and does nothing. Each call leaves a line in the broker's log.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ChannelAccessRefused, ChannelClosed
from pamqp.commands import Basic

from dlq_handler.broker.admin.admin_connection import AdminConnection, reason_of_close

# No binding ever has this key.
_NO_KEY = "dlq_handler.doctor"

Call = Callable[[AbstractChannel], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededRights:
    """The names on which the broker user needs each right."""

    configured_exchanges: tuple[str, ...] = ()
    configured_queues: tuple[str, ...] = ()
    written_exchanges: tuple[str, ...] = ()
    consumed_queues: tuple[str, ...] = ()
    bound: tuple[tuple[str, str], ...] = ()
    """Pairs of queue and exchange: binding writes to the one and reads from the other."""


async def missing_rights(admin: AdminConnection, needed: NeededRights) -> list[str]:
    """One sentence for each missing right."""
    missing = []
    for rights, call in _calls(needed):
        refusal = await _refused(admin, call)
        if refusal is not None:
            missing.append(_refused_right(rights, refusal))
    return missing


def _calls(needed: NeededRights) -> Iterator[tuple[Sequence[str], Call]]:
    for exchange in needed.configured_exchanges:
        yield [f"configure on exchange {exchange!r}"], _declares_exchange(exchange)
    for queue in needed.configured_queues:
        yield [f"configure on queue {queue!r}"], _declares_queue(queue)
    for exchange in needed.written_exchanges:
        yield [f"write on exchange {exchange!r}"], _publishes(exchange)
    for queue in needed.consumed_queues:
        yield [f"read on queue {queue!r}"], _consumes(queue)
    for queue, exchange in needed.bound:
        rights = [f"write on queue {queue!r}", f"read on exchange {exchange!r}"]
        yield rights, _unbinds(queue, exchange)


async def _refused(admin: AdminConnection, call: Call) -> str | None:
    async with admin.channel("ask for a right") as channel:
        try:
            await call(channel)
        except ChannelAccessRefused as refused:
            return str(refused)
        except ChannelClosed:
            return None
    return None


def _refused_right(rights: Sequence[str], refusal: str) -> str:
    """A binding needs two rights; the refusal names the object."""
    return rights[-1] if "access to exchange" in refusal else rights[0]


def _declares_exchange(exchange: str) -> Call:
    async def call(channel: AbstractChannel) -> None:
        await channel.exchange_declare(exchange, durable=True, arguments={"alternate-exchange": 1})

    return call


def _declares_queue(queue: str) -> Call:
    async def call(channel: AbstractChannel) -> None:
        await channel.queue_declare(queue, durable=True, arguments={"x-message-ttl": "probe"})

    return call


def _publishes(exchange: str) -> Call:
    async def call(channel: AbstractChannel) -> None:
        await channel.basic_publish(
            b"", exchange=exchange, routing_key=_NO_KEY, properties=Basic.Properties(expiration="probe")
        )
        # A publish has no reply: its refusal arrives before the reply to the next call, or even before that call.
        async with reason_of_close(channel):
            await channel.basic_qos(prefetch_count=1)

    return call


def _consumes(queue: str) -> Call:
    async def call(channel: AbstractChannel) -> None:
        await channel.basic_consume(queue, _reject_registration, arguments={"x-priority": "probe"})

    return call


def _unbinds(queue: str, exchange: str) -> Call:
    async def call(channel: AbstractChannel) -> None:
        await channel.queue_unbind(queue, exchange, _NO_KEY)

    return call


async def _reject_registration(_: DeliveredMessage) -> None:
    """Never called: the broker never registers this consumer."""
