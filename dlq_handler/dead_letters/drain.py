"""Drain the queues of unavailable workers, instead of waiting until every message has expired (off by default), and the
queues that are retired.

Promises: messages are received only while the worker is known to be unavailable or to have stopped, and its queue has
no consumer. Both are checked again before each transaction (queue_emptier.py). Never: keeps a worker from consuming its
own queue.

One case remains: when the broker is lost between commit and acknowledgement, the message returns to the queue, and a
worker that comes back runs an execution that was failed. The reconciler records such executions.
"""

import asyncio
from dataclasses import dataclass

from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.intake import DeadLetterConsumers
from dlq_handler.dead_letters.letter import DeadLetter, DrainedFrom, Retired
from dlq_handler.dead_letters.queue_emptier import DrainCheck, Drained, Note, QueueEmptier
from dlq_handler.dead_letters.record import Entry
from dlq_handler.endings.ender import Ender
from dlq_handler.errors import Braked, GateClosed, Unavailable
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames, has_stopped
from dlq_handler.host.workers_sql import read_worker_and_time
from dlq_handler.loop import every
from dlq_handler.safety.gate_service import Gate
from dlq_handler.workers.watch import WorkerWatch


class QueueDrainer:
    """Drains the queues of workers that are confirmed unavailable."""

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
        self._ender, self._names = ender, names
        self._emptier = QueueEmptier(ender, consumers)
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
            checker = _UnavailableChecker(self._database, self._leadership, worker)
            try:
                await self._emptier.empty(self._names.queue(worker.id), checker, stop, worker_id=worker.id)
            except (Braked, GateClosed):
                raise
            except Unavailable as error:
                # Perhaps only this queue fails: the others do not wait for it.
                failure = error
        if failure is not None:
            raise failure


@dataclass(frozen=True, slots=True)
class _UnavailableChecker:
    database: Database
    leadership: Leadership
    worker: Worker
    """As it was confirmed unavailable."""

    async def check(self, consumer: QueueConsumer[DeadLetter]) -> DrainCheck:
        counts = await consumer.count()
        found, now = await read_worker_and_time(self.database, self.worker.id)
        other_consumers = counts.consumers - int(consumer.is_consuming)
        why_not = why_not_drain(self.worker, found, other_consumers=other_consumers)
        return DrainCheck(
            why_not=why_not if self.leadership.is_leader else _NOT_LEADER,
            ready=counts.ready,
            now=now,
            drained_from=_drained_from(self.worker.id, found, other_consumers),
        )


_NOT_LEADER = "another replica is the leader"


def _drained_from(worker_id: int | None, found: Worker | None, other_consumers: int) -> DrainedFrom:
    return DrainedFrom(
        worker_id=worker_id,
        heartbeat_age_seconds=None if found is None else found.heartbeat_age_seconds,
        other_consumers=other_consumers,
    )


def why_not_drain(unavailable: Worker, found: Worker | None, *, other_consumers: int) -> str | None:
    """None: the queue may be drained. `unavailable`: the worker as it was confirmed; `found`: as it is now."""
    if found is None:
        # Deleting it has changed its executions, so no message is of their current attempt.
        return "its row was deleted"
    if found.last_heartbeat is None or found.last_heartbeat != unavailable.last_heartbeat:
        return "it has sent a heartbeat"
    if other_consumers > 0:
        return _HAS_CONSUMER
    return None


_HAS_CONSUMER = "its queue has a consumer"


class RetiredQueueDrainer:
    """Empties a queue that is being retired, for the leader: when its keys are bound to the retired queue."""

    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        gate: Gate,
        ender: Ender[DeadLetter, Entry],
        *,
        consumers: DeadLetterConsumers,
        availability: AvailabilityPolicy,
    ) -> None:
        """`ender`: one with this leadership, so that no other replica leads when it commits."""
        self._database, self._leadership, self._gate = database, leadership, gate
        self._ender, self._availability = ender, availability
        self._emptier = QueueEmptier(ender, consumers)

    async def drain(
        self,
        queue: str,
        stop: asyncio.Event,
        *,
        worker_id: int | None,
        is_archive: bool = False,
        records_left: int = 0,
        note: Note | None = None,
    ) -> Drained:
        """`worker_id`: None for a flow without a worker, whose queue only must have no consumer.

        A dispatch is decided. Other messages are archived: of a queue with `is_archive` all of them, at most
        `records_left` as records. Raises `QueueMissing`, another `Unavailable`, `Braked` or `GateClosed`.
        """
        # Never test by consuming: each delivery that returns to the queue counts against the delivery limit.
        await self._ender.check()
        return await self._emptier.empty(
            queue,
            _RetiredChecker(self._database, self._leadership, self._gate, self._availability, worker_id),
            stop,
            worker_id=worker_id,
            retired=Retired(is_archive=is_archive),
            records_left=records_left,
            note=note,
        )


@dataclass(frozen=True, slots=True)
class _RetiredChecker:
    database: Database
    leadership: Leadership
    gate: Gate
    availability: AvailabilityPolicy
    worker_id: int | None

    async def check(self, consumer: QueueConsumer[DeadLetter]) -> DrainCheck:
        counts = await consumer.count()
        # No worker has the id 0: for a flow without one, this reads the clock.
        found, now = await read_worker_and_time(self.database, self.worker_id or 0)
        other_consumers = counts.consumers - int(consumer.is_consuming)
        why_not = why_not_empty(
            found,
            other_consumers=other_consumers,
            link_age_seconds=self.gate.watched_seconds,
            policy=self.availability,
        )
        return DrainCheck(
            why_not=why_not if self.leadership.is_leader else _NOT_LEADER,
            ready=counts.ready,
            now=now,
            drained_from=_drained_from(self.worker_id, found, other_consumers),
        )


def why_not_empty(
    found: Worker | None, *, other_consumers: int, link_age_seconds: float, policy: AvailabilityPolicy
) -> str | None:
    """None: a queue that is being retired may be emptied. `found`: its worker; None: it has no row, or none ever."""
    if other_consumers > 0:
        return _HAS_CONSUMER
    if not has_stopped(found, link_age_seconds=link_age_seconds, policy=policy):
        return "its worker is not known to have stopped"
    return None
