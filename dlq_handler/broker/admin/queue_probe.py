"""Ask the broker about queues and exchanges by AMQP alone, without creating or changing anything.

Counts come from a passive declare. It does not show arguments: a passive declare with wrong ones succeeds. So
arguments come from refusals. An active declare that carries one argument of a wrong type can never create a queue.
For an existing queue the broker answers 406 and names the first argument that differs and its present value. For a
missing queue it answers that the argument is invalid, also if another client creates or deletes the queue meanwhile.
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

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.declare_refusal import Refusal, read_refusal

TTL_ARGUMENT = "x-message-ttl"
DEAD_LETTER_EXCHANGE_ARGUMENT = "x-dead-letter-exchange"

# Each value has a type that RabbitMQ refuses for its argument, for classic, quorum and stream queues alike.
_INVALID_VALUES: Mapping[str, FieldValue] = {TTL_ARGUMENT: "probe", DEAD_LETTER_EXCHANGE_ARGUMENT: 1}

# More than the number of arguments and flags that RabbitMQ compares.
_MAX_ROUNDS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """As of this instant. `ready` does not include unacknowledged messages."""

    ready: int
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeclaration:
    """The arguments of a queue's declaration, as far as the broker shows them. Policies are not included."""

    durable: bool = True
    auto_delete: bool = False
    arguments: Mapping[str, FieldValue] = field(default_factory=dict)

    @property
    def ttl_ms(self) -> int | None:
        value = self.arguments.get(TTL_ARGUMENT)
        return value if isinstance(value, int) else None


async def count_queue(admin: AdminConnection, queue: str) -> QueueCounts | None:
    """None: the queue does not exist."""
    async with admin.channel(f"count queue {queue!r}") as channel:
        try:
            answer = await channel.queue_declare(queue, passive=True)
        except ChannelNotFoundEntity:
            return None
        return QueueCounts(ready=answer.message_count or 0, consumers=answer.consumer_count or 0)


async def exchange_exists(admin: AdminConnection, exchange: str) -> bool:
    async with admin.channel(f"check exchange {exchange!r}") as channel:
        try:
            await channel.exchange_declare(exchange, passive=True)
        except ChannelNotFoundEntity:
            return False
        return True


async def probe_ttl_ms(admin: AdminConnection, queue: str) -> int | None:
    """Its x-message-ttl; None: it has none, does not exist, or the broker refuses the question."""
    probed = await probe_queue(admin, queue, asked=(TTL_ARGUMENT,))
    return probed.ttl_ms if probed is not None else None


async def probe_queue(
    admin: AdminConnection, queue: str, *, asked: Sequence[str] = tuple(_INVALID_VALUES)
) -> QueueDeclaration | None:
    """Its arguments; None: it does not exist, or the broker refuses the question."""
    known = _KnownArguments()
    for invalid in asked:
        refusal = await _learn_until_refused(admin, queue, invalid, known)
        if refusal is None:
            return None
        current = refusal.current
        if isinstance(current, str) and invalid == TTL_ARGUMENT and current.isdecimal():
            current = int(current)
        if current is not None:
            known.arguments[invalid] = current
    return QueueDeclaration(
        durable=known.flags["durable"],
        auto_delete=known.flags["auto_delete"],
        arguments=known.arguments,
    )


@dataclass(slots=True)
class _KnownArguments:
    arguments: dict[str, FieldValue] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=lambda: {"durable": True, "auto_delete": False})


async def _learn_until_refused(
    admin: AdminConnection, queue: str, invalid: str, known: _KnownArguments
) -> Refusal | None:
    """Declare with what is known so far, and learn one difference a round, until the invalid argument differs."""
    for _ in range(_MAX_ROUNDS):
        text = await _declare_with_invalid(admin, queue, invalid, known)
        if text is None:
            return Refusal(argument=invalid, current=None)
        refusal = read_refusal(text)
        if refusal is None or refusal.argument == invalid:
            return refusal
        if refusal.argument in known.flags:
            known.flags[refusal.argument] = refusal.current == "true"
        elif refusal.current is not None and refusal.argument not in known.arguments:
            known.arguments[refusal.argument] = refusal.current
        else:
            return None
    return None


async def _declare_with_invalid(
    admin: AdminConnection, queue: str, invalid: str, known: _KnownArguments
) -> str | None:
    """The broker's refusal. None: it did not refuse, because the type of this queue has no such argument."""
    async with admin.channel(f"probe queue {queue!r}") as channel:
        try:
            await channel.queue_declare(
                queue,
                durable=known.flags["durable"],
                auto_delete=known.flags["auto_delete"],
                arguments=known.arguments | {invalid: _INVALID_VALUES[invalid]},
            )
        except (
            ChannelPreconditionFailed,
            ChannelAccessRefused,
            ChannelLockedResource,
            # "Home node is down or inaccessible": its record is there and its process is not. It is being deleted
            # right now, or its node is down; one such queue must not stop the questions about the others.
            ChannelNotFoundEntity,
        ) as refused:
            return str(refused)
    return None


async def probe_exchange_type(admin: AdminConnection, exchange: str, expected: str) -> str | None:
    """The type of an exchange; None: it does not exist, or the broker refuses the question."""
    async with admin.channel(f"probe exchange {exchange!r}") as channel:
        try:
            await channel.exchange_declare(
                exchange,
                exchange_type=expected,
                durable=True,
                # A number is no exchange name, so a missing exchange is not created.
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
