"""Ask the broker about many queues: a few questions at a time, without creating or changing anything."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from itertools import islice

from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource, ChannelNotFoundEntity

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.queue_probe import TTL_ARGUMENT, QueueCounts, probe_queue
from dlq_handler.errors import Unavailable
from dlq_handler.tasks import task_group

_ASKERS = 8
_QUEUES_PER_CHANNEL = 100


async def existing_queues(link: AdminLink, queues: Collection[str]) -> frozenset[str]:
    """Those of the queues that exist, also if we may not see how they are."""
    counted = await count_all(link, queues)
    return frozenset(queues) - {queue for queue, counts in counted.items() if counts is None}


async def count_all(link: AdminLink, queues: Collection[str]) -> dict[str, QueueCounts | None]:
    """None for a queue that does not exist; one that the broker does not let us see is left out."""
    counted, _ = await count_until_refused(link, queues, refusals=len(queues))
    return counted


async def count_until_refused(
    link: AdminLink, queues: Collection[str], *, refusals: int
) -> tuple[dict[str, QueueCounts | None], list[str]]:
    """Stop after this number of refusals: each leaves error lines in the broker's log.

    Returns the counts as `count_all` does, and the queues that it did not ask about.
    """
    counted: dict[str, QueueCounts | None] = {}
    refused = 0
    left: list[str] = []
    waiting = iter(queues)

    async def ask() -> None:
        nonlocal refused
        for queue in waiting:
            # A channel is good until it meets a missing queue: one for each question would have the broker open and
            # close hundreds a second for a large fleet.
            asked: Sequence[str] = (queue, *islice(waiting, _QUEUES_PER_CHANNEL - 1))
            while asked:
                if refused >= refusals:
                    left.extend(asked)
                    break
                asked, was_refused = await _count_on_channel(link, asked, counted)
                refused += was_refused

    async with _told_once(), task_group() as askers:
        # Each of them may meet a refusal before it knows of the others'.
        for _ in range(max(1, min(_ASKERS, refusals))):
            askers.create_task(ask())
    return counted, left


async def _count_on_channel(
    link: AdminLink, queues: Sequence[str], counted: dict[str, QueueCounts | None]
) -> tuple[Sequence[str], bool]:
    """Ask over one channel, which the first refusal closes. Returns the queues that are left, and whether it did."""
    async with link.channel(f"look at queue {queues[0]!r} and others") as channel:
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


async def probe_all_ttl_ms(link: AdminLink, queues: Collection[str]) -> dict[str, int | None]:
    """The x-message-ttl of many, a few at a time. None: the queue has no TTL. One that is missing here is unknown."""
    probed: dict[str, int | None] = {}
    waiting = iter(queues)

    async def ask() -> None:
        for queue in waiting:
            answer = await probe_queue(link, queue, asked=(TTL_ARGUMENT,))
            if answer is not None:
                probed[queue] = answer.ttl_ms

    async with _told_once(), task_group() as askers:
        for _ in range(_ASKERS):
            askers.create_task(ask())
    return probed


@asynccontextmanager
async def _told_once() -> AsyncIterator[None]:
    """One loss of the broker is told once, not by each of the tasks that met it."""
    try:
        yield
    except ExceptionGroup as group:
        away, bugs = group.split(Unavailable)
        if away is None or bugs is not None:
            raise
        raise away.exceptions[0] from group
