"""Ask the broker about many queues: a few questions at a time, without creating or changing anything."""

from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource, ChannelNotFoundEntity

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import TTL_ARGUMENT, QueueCounts, probe_queue
from dlq_handler.errors import Unavailable
from dlq_handler.tasks import task_group

_ASKERS = 8
_QUEUES_PER_CHANNEL = 100


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
        away, bugs = group.split(Unavailable)
        if away is None or bugs is not None:
            raise
        raise away.exceptions[0] from group
