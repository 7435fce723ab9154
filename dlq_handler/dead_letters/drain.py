"""Empty the queues of workers that are gone, instead of waiting until every message has expired. Off by default.

Promises: messages are received only while the worker is confirmed unavailable and its queue has no consumer. Both are
checked again before each batch; undecided messages return to the queue, in their place. A message is decided by the
same rules, in the same transaction, as a letter, and acknowledged after that. Never: nacks (through the dead-letter
exchange a message is lost where a binding is missing), or keeps a worker from consuming its own queue.

One window is left: if we lose the broker between commit and acknowledgement, the message is back in the queue of a
worker that may come back and run it although it was failed. The monitor's look for such executions tells of it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.broker.consume.delivery import Delivery
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.drain_rules import rescued, why_not_rescue
from dlq_handler.dead_letters.letter import DeadLetter, Rescue
from dlq_handler.dead_letters.record import Entry
from dlq_handler.endings.ender import Ender
from dlq_handler.errors import Braked, Contended, GateClosed, Unavailable
from dlq_handler.host.worker import Worker
from dlq_handler.host.workers_sql import look_at_worker
from dlq_handler.loop import every
from dlq_handler.workers.watch import WorkerWatch

log = structlog.get_logger()

# So long without a message, and the queue counts as empty.
IDLE_SECONDS = 1.0


class Rescuer:
    def __init__(
        self,
        database: Database,
        watch: WorkerWatch,
        leadership: Leadership,
        ender: Ender[DeadLetter, Entry],
        *,
        source_of: Callable[[int], QueueConsumer[DeadLetter]],
        interval_seconds: float = 5.0,
    ) -> None:
        """`source_of(worker_id)`: a source, not open yet, of that worker's queue."""
        self._database, self._watch, self._leadership = database, watch, leadership
        self._ender, self._source_of = ender, source_of
        self._interval_seconds = interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, lambda: self.tick(stop), stop, name="rescue")

    async def tick(self, stop: asyncio.Event) -> None:
        # A hint is enough here, for two that rescue at once do no harm: each message is in one hand only. But each
        # would take the other for the worker that came back.
        if not self._leadership.is_leader:
            return
        gone = [worker for one, worker in self._watch.gone.items() if one in self._watch.unattended]
        if not gone:
            return
        # Never probe by consuming: messages taken in vain only wear out their delivery count.
        await self._ender.check()
        trouble: Unavailable | None = None
        for worker in gone:
            if stop.is_set():
                break
            try:
                await self._rescue(worker, stop)
            except (Braked, GateClosed):
                raise
            except Unavailable as error:
                # Perhaps this one queue only: the others are not made to wait for it.
                trouble = error
        if trouble is not None:
            raise trouble

    async def _rescue(self, worker: Worker, stop: asyncio.Event) -> None:
        source = self._source_of(worker.id)
        try:
            look = await self._look(worker, source)
            if look.why_not is not None or not look.ready:
                return
            await source.open()
            log.warning("drain.started", worker_id=worker.id, queue=source.queue)
            messages, explanation = 0, None
            while explanation is None:
                batch = await source.next_batch(stop, IDLE_SECONDS)
                explanation = None if batch else "nothing is left to take"
                while batch and explanation is None:
                    ended = await self._end(worker, source, batch)
                    if isinstance(ended, str):
                        explanation = ended
                    else:
                        messages += ended
                        batch = batch[ended:]
            log.warning(
                "drain.ended",
                worker_id=worker.id,
                queue=source.queue,
                messages=messages,
                explanation=explanation,
            )
        finally:
            # What is not settled goes back.
            await source.close()

    async def _end(
        self, worker: Worker, source: QueueConsumer[DeadLetter], batch: Sequence[Delivery[DeadLetter]]
    ) -> int | str:
        """Decide, commit, acknowledge. Returns how many of the first messages are done, or why none is."""
        look = await self._look(worker, source)
        if look.why_not is not None:
            return look.why_not
        letters = [
            rescued(delivery.item, look.rescue, queue=source.queue, now=look.now) for delivery in batch
        ]
        try:
            committed = await self._ender.commit_first(letters)
        except Contended as error:
            return f"the database asks to try again: {error}"
        # Only after the commit. Those postponed return to the queue when the consumer is closed.
        await source.acknowledge(
            [
                delivery
                for letter, delivery in zip(letters[: committed.items], batch, strict=False)
                if letter.key not in committed.postponed
            ]
        )
        return committed.items

    async def _look(self, worker: Worker, source: QueueConsumer[DeadLetter]) -> "_Look":
        """May we, still?"""
        counts = await source.count()
        found, now = await look_at_worker(self._database, worker.id)
        other_consumers = counts.consumers - int(source.is_consuming)
        why_not = why_not_rescue(worker, found, other_consumers=other_consumers)
        if not self._leadership.is_leader:
            why_not = "another replica leads by now"
        return _Look(
            why_not=why_not,
            ready=counts.ready,
            now=now,
            rescue=Rescue(
                worker_id=worker.id,
                heartbeat_age_seconds=(found.heartbeat_age_seconds if found else None) or 0.0,
                other_consumers=other_consumers,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    why_not: str | None
    ready: int
    now: datetime
    """The database's clock."""
    rescue: Rescue
