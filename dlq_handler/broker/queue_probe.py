"""Ask the broker about queues and exchanges by AMQP alone, without creating or changing anything.

Counts come from a passive declare. Arguments cannot be read that way (a passive declare with wrong ones
succeeds), so they are learned from refusals: an active declare that carries one argument of a wrong type can
never create a queue. One that exists answers with 406, naming the first argument that differs and its present
value; one that does not exist answers that the argument is invalid, whoever creates or deletes it meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiormq.abc import FieldValue
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.refusal import Refusal, read_refusal

TTL_ARGUMENT = "x-message-ttl"
DEAD_LETTER_EXCHANGE_ARGUMENT = "x-dead-letter-exchange"

# Each value has a type that RabbitMQ refuses for its argument, for classic, quorum and stream queues alike.
_POISON: Mapping[str, FieldValue] = {TTL_ARGUMENT: "probe", DEAD_LETTER_EXCHANGE_ARGUMENT: 1}

# More rounds than RabbitMQ knows arguments and flags that are compared.
_MOST_ROUNDS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """As of this instant. `ready` leaves out what consumers hold."""

    ready: int
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedQueue:
    """What a queue was declared with, as far as the broker told; policies do not show here."""

    durable: bool = True
    auto_delete: bool = False
    arguments: Mapping[str, FieldValue] = field(default_factory=dict)

    @property
    def ttl_ms(self) -> int | None:
        value = self.arguments.get(TTL_ARGUMENT)
        return value if isinstance(value, int) else None


async def count(link: AdminLink, queue: str) -> QueueCounts | None:
    """None when there is no such queue."""
    async with link.channel(f"look at queue {queue!r}") as channel:
        try:
            answer = await channel.queue_declare(queue, passive=True)
        except ChannelNotFoundEntity:
            return None
        return QueueCounts(ready=answer.message_count or 0, consumers=answer.consumer_count or 0)


async def exchange_exists(link: AdminLink, exchange: str) -> bool:
    async with link.channel(f"look at exchange {exchange!r}") as channel:
        try:
            await channel.exchange_declare(exchange, passive=True)
        except ChannelNotFoundEntity:
            return False
        return True


async def probe_ttl_ms(link: AdminLink, queue: str) -> int | None:
    """Its x-message-ttl; None when it has none, does not exist, or the broker does not let us ask."""
    probed = await probe_queue(link, queue, asked=(TTL_ARGUMENT,))
    return probed.ttl_ms if probed is not None else None


async def probe_queue(
    link: AdminLink, queue: str, *, asked: Sequence[str] = tuple(_POISON)
) -> ProbedQueue | None:
    """Its arguments; None when it does not exist, or when the broker does not let us ask."""
    learned = _Learned()
    for poisoned in asked:
        refusal = await _learn_until_refused(link, queue, poisoned, learned)
        if refusal is None:
            return None
        current = refusal.current
        if isinstance(current, str) and poisoned == TTL_ARGUMENT and current.isdecimal():
            current = int(current)
        if current is not None:
            learned.arguments[poisoned] = current
    return ProbedQueue(
        durable=learned.flags["durable"],
        auto_delete=learned.flags["auto_delete"],
        arguments=learned.arguments,
    )


@dataclass(slots=True)
class _Learned:
    arguments: dict[str, FieldValue] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=lambda: {"durable": True, "auto_delete": False})


async def _learn_until_refused(
    link: AdminLink, queue: str, poisoned: str, learned: _Learned
) -> Refusal | None:
    """Declare with what is known so far, learning one difference a round, until the poison differs."""
    for _ in range(_MOST_ROUNDS):
        said = await _declare_poisoned(link, queue, poisoned, learned)
        if said is None:
            return Refusal(argument=poisoned, current=None)
        refusal = read_refusal(said)
        if refusal is None or refusal.argument == poisoned:
            return refusal
        if refusal.argument in learned.flags:
            learned.flags[refusal.argument] = refusal.current == "true"
        elif refusal.current is not None and refusal.argument not in learned.arguments:
            learned.arguments[refusal.argument] = refusal.current
        else:
            return None
    return None


async def _declare_poisoned(link: AdminLink, queue: str, poisoned: str, learned: _Learned) -> str | None:
    """How the broker refuses. None: it did not, for the queue exists and its type has no such argument."""
    async with link.channel(f"probe queue {queue!r}") as channel:
        try:
            await channel.queue_declare(
                queue,
                durable=learned.flags["durable"],
                auto_delete=learned.flags["auto_delete"],
                arguments=learned.arguments | {poisoned: _POISON[poisoned]},
            )
        except (
            ChannelPreconditionFailed,
            ChannelAccessRefused,
            ChannelLockedResource,
            # "Home node is down or inaccessible": its record is there and its process is not. It is being deleted
            # right now, or its node is away; one such queue must not end the look at all the others.
            ChannelNotFoundEntity,
        ) as refused:
            return str(refused)
    return None


async def probe_exchange_type(link: AdminLink, exchange: str, expected: str) -> str | None:
    """The type of an exchange; None when it does not exist, or when the broker does not let us ask."""
    async with link.channel(f"probe exchange {exchange!r}") as channel:
        try:
            await channel.exchange_declare(
                exchange,
                exchange_type=expected,
                durable=True,
                # Poison: a number is no exchange name, so a missing exchange is not created.
                arguments={"alternate-exchange": 1},
            )
        except ChannelPreconditionFailed as refused:
            refusal = read_refusal(str(refused))
            if refusal is None:
                return None
            return str(refusal.current) if refusal.argument == "type" else expected
        except ChannelAccessRefused:
            return None
    return expected
