"""Ask the broker about queues and exchanges by AMQP alone, without creating or changing anything.

Counts come from a passive declare. It does not show arguments: a passive declare with wrong ones succeeds. So
arguments come from refusals. An active declare that carries one argument of a wrong type can never create a queue.
For an existing queue the broker answers 406 and names the first argument that differs and its present value. For a
missing queue it answers that the argument is invalid, also if another client creates or deletes the queue meanwhile.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiormq.abc import FieldValue
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.snapshot import DEAD_LETTER_EXCHANGE_ARGUMENT, TTL_ARGUMENT
from dlq_handler.errors import Unavailable
from dlq_handler.tasks import task_group

# Each value has a type that RabbitMQ refuses for its argument, for classic, quorum and stream queues alike.
_INVALID_VALUES: Mapping[str, FieldValue] = {TTL_ARGUMENT: "probe", DEAD_LETTER_EXCHANGE_ARGUMENT: 1}

# Questions about many queues: how many at once, and how many over one channel.
_ASKERS = 8
_QUEUES_PER_CHANNEL = 100

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a declare was refused: the first argument (or flag) that differs, and its current value; None: not set.

    A value is a number only if the broker gives a number type: an exchange may be called '123'.
    """

    argument: str
    current: str | int | None


_INEQUIVALENT = re.compile(r"inequivalent arg '([^']+)' for (?:queue|exchange) ")
_TYPED = re.compile(r"the value '(?P<value>.*)' of type '(?P<type>\w+)'", re.DOTALL)
_UNTYPED = re.compile(r"'(?P<value>.*)'", re.DOTALL)
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_TEXT_TYPES = frozenset({"longstr", "shortstr"})


def read_refusal(text: str) -> Refusal | None:
    """Parse the text of RabbitMQ. None: any other text."""
    found = _INEQUIVALENT.search(text)
    # The last occurrence: a queue's name may contain any text, but it comes before.
    _, separator, tail = text.rpartition(" but current is ")
    if found is None or not separator:
        return None
    tail = tail.strip()
    if tail == "none":
        return Refusal(argument=found[1], current=None)
    if typed := _TYPED.fullmatch(tail):
        is_number = typed["type"] not in _TEXT_TYPES and _WHOLE_NUMBER.fullmatch(typed["value"])
        return Refusal(argument=found[1], current=int(typed["value"]) if is_number else typed["value"])
    if untyped := _UNTYPED.fullmatch(tail):
        return Refusal(argument=found[1], current=untyped["value"])
    return None


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


async def existing_queues(admin: AdminConnection, queues: Collection[str]) -> frozenset[str]:
    """The queues that exist, also those whose counts the broker refuses."""
    counted = await count_all(admin, queues)
    return frozenset(queues) - {queue for queue, counts in counted.items() if counts is None}


async def count_all(admin: AdminConnection, queues: Collection[str]) -> dict[str, QueueCounts | None]:
    """None: the queue does not exist. A queue that the broker refuses to count is left out."""
    counted, _ = await count_until_refused(admin, queues, refusals=len(queues))
    return counted


async def count_until_refused(
    admin: AdminConnection, queues: Collection[str], *, refusals: int
) -> tuple[dict[str, QueueCounts | None], list[str]]:
    """Stop at this number of refusals, and never exceed it: each leaves error lines in the broker's log.

    Returns the counts as `count_all` does, and the queues that it did not ask about.
    """
    counted: dict[str, QueueCounts | None] = {}
    places = refusals
    waiting = deque(queues)

    async def ask() -> None:
        nonlocal places
        # A place is taken before the question: otherwise all askers could meet a refusal beyond the last one.
        while waiting and places:
            places -= 1
            # A channel lasts until a missing queue closes it. One channel per question would make the broker open and
            # close hundreds a second for a large fleet.
            asked = [waiting.popleft() for _ in range(min(len(waiting), _QUEUES_PER_CHANNEL))]
            left, was_refused = await _count_on_channel(admin, asked, counted)
            if was_refused:
                waiting.extendleft(reversed(left))
            else:
                places += 1

    async with _first_unavailable(), task_group() as askers:
        for _ in range(_ASKERS):
            askers.create_task(ask())
    return counted, list(waiting)


async def _count_on_channel(
    admin: AdminConnection, queues: Sequence[str], counted: dict[str, QueueCounts | None]
) -> tuple[Sequence[str], bool]:
    """Ask over one channel until a refusal closes it. Returns the queues that are left, and whether one was refused."""
    async with admin.channel(f"count queue {queues[0]!r} and others") as channel:
        for place, queue in enumerate(queues, start=1):
            try:
                answer = await channel.queue_declare(queue, passive=True)
            except ChannelNotFoundEntity:
                counted[queue] = None
                return queues[place:], True
            except (ChannelAccessRefused, ChannelLockedResource):
                return queues[place:], True
            counted[queue] = QueueCounts(
                ready=answer.message_count or 0, consumers=answer.consumer_count or 0
            )
    return (), False


async def probe_all_ttl_ms(admin: AdminConnection, queues: Collection[str]) -> dict[str, int | None]:
    """The x-message-ttl of many queues, a few at a time. None: no TTL. A queue that is left out is unknown."""
    probed: dict[str, int | None] = {}
    waiting = iter(queues)

    async def ask() -> None:
        for queue in waiting:
            answer = await probe_queue(admin, queue, asked=(TTL_ARGUMENT,))
            if answer is not None:
                probed[queue] = answer.ttl_ms

    async with _first_unavailable(), task_group() as askers:
        for _ in range(_ASKERS):
            askers.create_task(ask())
    return probed


@asynccontextmanager
async def _first_unavailable() -> AsyncIterator[None]:
    """One lost connection ends in one error, not in one for each task."""
    try:
        yield
    except ExceptionGroup as group:
        unavailable, bugs = group.split(Unavailable)
        if unavailable is None or bugs is not None:
            raise
        raise unavailable.exceptions[0] from group
