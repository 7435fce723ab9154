"""Empty one queue into the pipeline of dead letters: check, receive, decide, commit, acknowledge.

Promises: messages are received only while the checker allows it; it is asked again before each transaction, and then
undecided messages return to the queue, in their place. A message is decided by the rules, and in the transaction, of a
dead letter, and acknowledged after that. Never: rejects a message. Through the dead-letter exchange it is lost where a
binding is missing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog

from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.broker.delivery import Delivery
from dlq_handler.dead_letters.intake import DeadLetterConsumers
from dlq_handler.dead_letters.letter import DeadLetter, DrainedFrom, Retired
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.rescued import as_drained
from dlq_handler.endings.ender import Ender
from dlq_handler.errors import Contended

log = structlog.get_logger()

# A queue that delivers nothing for this long counts as empty.
IDLE_SECONDS = 1.0

# The last in line: a worker that comes back while its queue is drained gets what is left.
DRAIN_PRIORITY = -10


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCheck:
    why_not: str | None
    """None: the queue may be drained now."""
    ready: int
    now: datetime
    """The database's clock."""
    drained_from: DrainedFrom


class DrainChecker(Protocol):
    """Whether one queue may be drained, and from whom its messages are."""

    async def check(self, consumer: QueueConsumer[DeadLetter]) -> DrainCheck: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What was acknowledged, now or by one transaction."""

    messages: int = 0
    archived: int = 0
    """Of them, from a queue whose contents are archived, and on record."""
    beyond_limit: int = 0
    """Of them, from such a queue, and only counted."""
    why_not: str | None = None
    """Why messages may be left in the queue. None: it was empty."""


Note = Callable[[Drained], Awaitable[None]]
"""Called after each commit, before the acknowledgement: a crash in between counts a message twice, never too little."""


class QueueEmptier:
    """Take messages of one queue: check, decide, commit, acknowledge, until it is empty or must not be drained."""

    def __init__(self, ender: Ender[DeadLetter, Entry], consumers: DeadLetterConsumers) -> None:
        self._ender, self._consumers = ender, consumers

    async def empty(
        self,
        queue: str,
        checker: DrainChecker,
        stop: asyncio.Event,
        *,
        worker_id: int | None,
        retired: Retired | None = None,
        records_left: int = 0,
        note: Note | None = None,
    ) -> Drained:
        """`retired`: set when the queue is being retired. `records_left`: how many messages of a queue whose contents
        are archived may still be recorded; the others are only counted.
        """
        consumer = self._consumers.of_queue(queue, priority=DRAIN_PRIORITY)
        done = Drained()
        try:
            check = await checker.check(consumer)
            if check.why_not is not None or not check.ready:
                return Drained(why_not=check.why_not)
            await consumer.open()
            log.warning("drain.started", worker_id=worker_id, queue=queue)
            why_not: str | None = None
            while why_not is None and (batch := await consumer.next_batch(stop, IDLE_SECONDS)):
                while batch and why_not is None:
                    taken = await self._take(
                        consumer,
                        batch,
                        checker,
                        retired,
                        records_left=records_left - done.archived,
                        note=note,
                    )
                    if isinstance(taken, str):
                        why_not = taken
                    else:
                        done = _sum(done, taken.settled)
                        batch = batch[taken.first :]
            if why_not is None and stop.is_set():
                why_not = "the replica is being stopped"
            log.warning(
                "drain.ended",
                worker_id=worker_id,
                queue=queue,
                messages=done.messages,
                explanation=why_not or "nothing is left to take",
            )
            return replace(done, why_not=why_not)
        finally:
            # Unacknowledged messages return to the queue.
            await consumer.close()

    async def _take(
        self,
        consumer: QueueConsumer[DeadLetter],
        batch: Sequence[Delivery[DeadLetter]],
        checker: DrainChecker,
        retired: Retired | None,
        *,
        records_left: int,
        note: Note | None,
    ) -> "_Taken | str":
        """Decide, commit, acknowledge the first of these. Returns why none of them may be taken."""
        check = await checker.check(consumer)
        if check.why_not is not None:
            return check.why_not
        is_archive = retired is not None and retired.is_archive
        if is_archive and records_left <= 0:
            return await _settle(consumer, batch, Drained(messages=len(batch), beyond_limit=len(batch)), note)
        if is_archive:
            batch = batch[:records_left]
        letters = [
            as_drained(
                delivery.item, check.drained_from, queue=consumer.queue, now=check.now, retired=retired
            )
            for delivery in batch
        ]
        try:
            committed = await self._ender.commit_first(letters)
        except Contended as error:
            return f"the database asks to try again: {error}"
        first = committed.items
        # Those postponed return to the queue when the consumer is closed.
        settled = [
            delivery
            for letter, delivery in zip(letters[:first], batch, strict=False)
            if letter.key not in committed.postponed
        ]
        counted = Drained(messages=len(settled), archived=len(settled) if is_archive else 0)
        taken = await _settle(consumer, settled, counted, note)
        return _Taken(first=first, settled=taken.settled)


@dataclass(frozen=True, slots=True)
class _Taken:
    first: int
    """How many of the first messages need no other transaction."""
    settled: Drained


async def _settle(
    consumer: QueueConsumer[DeadLetter],
    deliveries: Sequence[Delivery[DeadLetter]],
    counted: Drained,
    note: Note | None,
) -> _Taken:
    if note is not None and deliveries:
        await note(counted)
    # Only after the commit: a crash in between redelivers, and the key of the message absorbs the repeat.
    await consumer.acknowledge(deliveries)
    return _Taken(first=len(deliveries), settled=counted)


def _sum(one: Drained, other: Drained) -> Drained:
    return Drained(
        messages=one.messages + other.messages,
        archived=one.archived + other.archived,
        beyond_limit=one.beyond_limit + other.beyond_limit,
    )
