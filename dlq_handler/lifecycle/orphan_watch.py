"""Find orphaned queues of workers, and retire them if `dlq_handler.lifecycle.orphans.enabled`.

To retire is to write a record: the stop of a flow does the rest, and checks everything again at each step. Rows of
workers stay.

Promises: a queue is an orphan only if the broker and the database said so within seconds, and unknown is never a reason
to retire. At most `MOST_AT_ONCE` workers are retired at a time. Never: changes anything on the broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import structlog

from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.errors import Unavailable
from dlq_handler.host.owners import queues_of_worker
from dlq_handler.host.worker import AvailabilityPolicy, WorkerQueueNames
from dlq_handler.host.worker_lifecycle_sql import workers_with_open_executions
from dlq_handler.host.workers_sql import read_worker_ids, read_workers
from dlq_handler.lifecycle import flows_sql, orphans_sql
from dlq_handler.lifecycle.orphans import CountedQueue, WorkerQueues, by_worker, decide_orphan, facts_of
from dlq_handler.lifecycle.wishes import WishRefused, wish_retirement
from dlq_handler.loop import every
from dlq_handler.safety.gate_service import Gate

log = structlog.get_logger()

INTERVAL_SECONDS = 60.0

MOST_AT_ONCE = 20

WANTED_BY = "dlq-handler"
"""In the records of retirements that no operator asked for."""

NAMES_UNKNOWN = (
    "only queues of workers that the database knows are checked, because AMQP cannot list queues; "
    "dlq_handler.broker.management_url says where the management API is"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanList:
    workers: tuple[WorkerQueues, ...]
    """Every worker of which a queue exists, by id; `is_orphan` says which of them are orphans."""
    limits: tuple[str, ...] = ()
    """What could not be read, and why; empty: nothing."""

    @property
    def orphans(self) -> tuple[WorkerQueues, ...]:
        return tuple(worker for worker in self.workers if worker.is_orphan)


class OrphanFinder:
    def __init__(
        self,
        database: Database,
        counter: QueueCounter,
        queue_names: Callable[[], Awaitable[Collection[str]]],
        *,
        names: WorkerQueueNames,
        availability: AvailabilityPolicy,
        after_seconds: float,
    ) -> None:
        """`queue_names` asks the management API for all queues; it may not answer."""
        self._database, self._counter, self._queue_names = database, counter, queue_names
        self._names, self._availability, self._after_seconds = names, availability, after_seconds

    async def find(self, *, link_age_seconds: float) -> OrphanList:
        """`link_age_seconds`: how long heartbeats could be read reliably. A command that a person waits for may pass
        infinity: the stop itself waits until its replica has been connected for long enough.
        """
        queues, limits = await self._existing_queues()
        owned = by_worker(queues, self._names)
        async with self._database.transaction() as tx:
            facts = facts_of(
                owned,
                workers=await read_workers(tx, owned),
                with_open_executions=await workers_with_open_executions(tx, owned),
                live_flows=await orphans_sql.leaked_queues(tx)
                | await flows_sql.claims(tx, [queue.name for queue in queues]),
            )
        workers = [
            decide_orphan(
                one,
                after_seconds=self._after_seconds,
                link_age_seconds=link_age_seconds,
                policy=self._availability,
            )
            for one in facts
        ]
        return OrphanList(workers=tuple(workers), limits=limits)

    async def _existing_queues(self) -> tuple[list[CountedQueue], tuple[str, ...]]:
        try:
            listed = await self._queue_names()
        except Unavailable as error:
            asked = await self._known_queues()
            counted = await self._counter.count_all(asked)
            limits = [f"{error}; {NAMES_UNKNOWN}"]
            if unknown := len(asked) - len(counted):
                limits.append(
                    f"{unknown} queue(s) may exist: each question about a missing queue leaves error lines in the "
                    "broker's log, so dlq-handler asks few of them"
                )
            return [_counted(name, counts) for name, counts in counted.items() if counts is not None], (
                *limits,
            )
        asked = [
            name for owned in by_worker(_by_name(listed), self._names).values() for name in map(_name, owned)
        ]
        counted = await self._counter.count_all(asked)
        # Those that are listed and not counted exist, and the broker refuses to count them.
        return [
            _counted(name, counted.get(name))
            for name in asked
            if name not in counted or counted[name] is not None
        ], ()

    async def _known_queues(self) -> list[str]:
        async with self._database.transaction() as tx:
            ids = await read_worker_ids(tx) | await orphans_sql.worker_ids_on_record(tx)
        return [queue.name for one in sorted(ids) for queue in queues_of_worker(one, self._names)]


def _by_name(names: Collection[str]) -> list[CountedQueue]:
    return [CountedQueue(name=name, consumers=None) for name in names]


def _name(queue: CountedQueue) -> str:
    return queue.name


def _counted(name: str, counts: QueueCounts | None) -> CountedQueue:
    if counts is None:
        return CountedQueue(name=name, consumers=None)
    return CountedQueue(name=name, consumers=counts.consumers, ready=counts.ready)


class OrphanWatch:
    """Retires orphans, on the leader. Off by default."""

    def __init__(
        self,
        database: Database,
        finder: OrphanFinder,
        leadership: Leadership,
        gate: Gate,
        *,
        names: WorkerQueueNames,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._database, self._finder = database, finder
        self._leadership, self._gate, self._names = leadership, gate, names
        self._interval_seconds = interval_seconds
        self._wake = asyncio.Event()
        leadership.wake_when_taken(self._wake)

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="orphan-watch", wake=self._wake)

    async def tick(self) -> None:
        self._wake.clear()
        if not self._leadership.is_leader:
            return
        # In a wrong database no worker has a row, and every queue would seem to be an orphan.
        self._gate.check()
        found = await self._finder.find(link_age_seconds=self._gate.watched_seconds)
        for worker in found.orphans:
            if not await self._retire(worker):
                return

    async def _retire(self, worker: WorkerQueues) -> bool:
        """False: enough are being retired."""
        try:
            async with self._database.transaction() as tx:
                if await orphans_sql.count_retirements(tx) >= MOST_AT_ONCE:
                    return False
                await wish_retirement(
                    tx, worker.worker_id, names=self._names, wanted_by=WANTED_BY, comment=worker.why
                )
                await self._leadership.fence(tx)
        except WishRefused as refused:
            log.info("orphan.left", worker_id=worker.worker_id, explanation=str(refused))
        else:
            log.warning(
                "orphan.retired",
                worker_id=worker.worker_id,
                queues=worker.queue_names,
                explanation=worker.why,
            )
        return True
