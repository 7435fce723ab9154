"""Drain the queues of unavailable workers, instead of waiting until every message has expired. Off by default.

Promises: messages are received only while the worker is confirmed unavailable and its queue has no consumer. Both are
checked again before each transaction; undecided messages return to the queue, in their place. A message is decided by
the rules, and in the transaction, of a dead letter, and acknowledged after that. Never: rejects a message (through the
dead-letter exchange it is lost where a binding is missing), or keeps a worker from consuming its own queue.

One case remains: when the broker is lost between commit and acknowledgement, the message returns to the queue, and a
worker that comes back runs an execution that was failed. The reconciler records such executions.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.broker.delivery import Delivery
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.intake import DeadLetterConsumers
from dlq_handler.dead_letters.letter import RESCUED, DeadLetter, Death, DrainedFrom
from dlq_handler.dead_letters.record import Entry
from dlq_handler.endings.ender import Ender
from dlq_handler.errors import Braked, Contended, GateClosed, Unavailable
from dlq_handler.host.worker import Worker, WorkerQueueNames
from dlq_handler.host.workers_sql import read_worker_and_time
from dlq_handler.loop import every
from dlq_handler.workers.watch import WorkerWatch

log = structlog.get_logger()

# A queue that delivers nothing for this long counts as empty.
IDLE_SECONDS = 1.0

# The last in line: a worker that comes back while its queue is drained gets what is left.
DRAIN_PRIORITY = -10


class QueueDrainer:
    def __init__(
        self,
        database: Database,
        watch: WorkerWatch,
        leadership: Leadership,
        ender: Ender[DeadLetter, Entry],
        *,
        consumers: DeadLetterConsumers,
        names: WorkerQueueNames,
        interval_seconds: float = 5.0,
    ) -> None:
        self._database, self._watch, self._leadership = database, watch, leadership
        self._ender, self._consumers, self._names = ender, consumers, names
        self._interval_seconds = interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, lambda: self.tick(stop), stop, name="queue-drainer")

    async def tick(self, stop: asyncio.Event) -> None:
        # Two replicas that drain one queue do no harm, but each would take the other for the worker that came back.
        if not self._leadership.is_leader:
            return
        unavailable = [
            worker for one, worker in self._watch.unavailable.items() if one in self._watch.unattended
        ]
        if not unavailable:
            return
        # Never test by consuming: each delivery that returns to the queue counts against the delivery limit.
        await self._ender.check()
        failure: Unavailable | None = None
        for worker in unavailable:
            if stop.is_set():
                break
            try:
                await self._drain(worker, stop)
            except (Braked, GateClosed):
                raise
            except Unavailable as error:
                # Perhaps only this queue fails: the others do not wait for it.
                failure = error
        if failure is not None:
            raise failure

    async def _drain(self, worker: Worker, stop: asyncio.Event) -> None:
        consumer = self._consumers.of_queue(self._names.queue(worker.id), priority=DRAIN_PRIORITY)
        try:
            check = await self._check(worker, consumer)
            if check.why_not is not None or not check.ready:
                return
            await consumer.open()
            log.warning("drain.started", worker_id=worker.id, queue=consumer.queue)
            messages, explanation = 0, None
            while explanation is None:
                batch = await consumer.next_batch(stop, IDLE_SECONDS)
                explanation = None if batch else "nothing is left to take"
                while batch and explanation is None:
                    ended = await self._end(worker, consumer, batch)
                    if isinstance(ended, str):
                        explanation = ended
                    else:
                        messages += ended
                        batch = batch[ended:]
            log.warning(
                "drain.ended",
                worker_id=worker.id,
                queue=consumer.queue,
                messages=messages,
                explanation=explanation,
            )
        finally:
            # Unacknowledged messages return to the queue.
            await consumer.close()

    async def _end(
        self, worker: Worker, consumer: QueueConsumer[DeadLetter], batch: Sequence[Delivery[DeadLetter]]
    ) -> int | str:
        """Decide, commit, acknowledge. Returns how many of the first messages are done, or why none is."""
        check = await self._check(worker, consumer)
        if check.why_not is not None:
            return check.why_not
        letters = [
            as_drained(delivery.item, check.drained_from, queue=consumer.queue, now=check.now)
            for delivery in batch
        ]
        try:
            committed = await self._ender.commit_first(letters)
        except Contended as error:
            return f"the database asks to try again: {error}"
        # Only after the commit. Those postponed return to the queue when the consumer is closed.
        await consumer.acknowledge(
            [
                delivery
                for letter, delivery in zip(letters[: committed.items], batch, strict=False)
                if letter.key not in committed.postponed
            ]
        )
        return committed.items

    async def _check(self, worker: Worker, consumer: QueueConsumer[DeadLetter]) -> "_Check":
        """Whether the queue may still be drained."""
        counts = await consumer.count()
        found, now = await read_worker_and_time(self._database, worker.id)
        other_consumers = counts.consumers - int(consumer.is_consuming)
        why_not = why_not_drain(worker, found, other_consumers=other_consumers)
        if not self._leadership.is_leader:
            why_not = "another replica is the leader"
        return _Check(
            why_not=why_not,
            ready=counts.ready,
            now=now,
            drained_from=DrainedFrom(
                worker_id=worker.id,
                heartbeat_age_seconds=(found.heartbeat_age_seconds if found else None) or 0.0,
                other_consumers=other_consumers,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    why_not: str | None
    ready: int
    now: datetime
    """The database's clock."""
    drained_from: DrainedFrom


def why_not_drain(unavailable: Worker, found: Worker | None, *, other_consumers: int) -> str | None:
    """None: the queue may be drained. `unavailable`: the worker as it was confirmed; `found`: as it is now."""
    if found is None:
        # Deleting it has changed its executions, so no message is of their current attempt.
        return "its row was deleted"
    if found.last_heartbeat is None or found.last_heartbeat != unavailable.last_heartbeat:
        return "it has sent a heartbeat"
    if other_consumers > 0:
        return "its queue has a consumer"
    return None


def as_drained(letter: DeadLetter, drained_from: DrainedFrom, *, queue: str, now: datetime) -> DeadLetter:
    """The message as if it had been dead-lettered from `queue` now.

    Its key does not depend on the time: a message that returns because its acknowledgement was lost has the same key.
    """
    return replace(
        letter,
        key=hashlib.sha256(f"{RESCUED}\x1f{queue}\x1f{letter.key}".encode()).hexdigest(),
        death=Death(
            queue=queue,
            reason=RESCUED,
            time=now,
            count=1,
            exchange=letter.exchange,
        ),
        first_death_queue=letter.first_death_queue or queue,
        drained_from=drained_from,
    )
