"""Look for services of the host that run without consumers, and put what is seen on record. On the leader.

Commands look once and need the looks before theirs; so does a new leader. Creates and changes nothing at the broker,
and asks about worker queues nothing that the worker watch has not asked already.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.database.clock_sql import database_time
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames, is_on_time
from dlq_handler.loop import every
from dlq_handler.workers import service_looks_sql as store
from dlq_handler.workers.service_look import BrokerRun, Reporting, ServiceLook, look_again, same_start
from dlq_handler.workers.watch import FleetLook, WorkerWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWatchPolicy:
    names: WorkerQueueNames
    executor_queues: Collection[str]
    availability: AvailabilityPolicy
    interval_seconds: float = 5.0


class ServiceWatch:
    def __init__(
        self,
        database: Database,
        policy: ServiceWatchPolicy,
        *,
        workers: WorkerWatch,
        queues: QueueCounter,
        uptime_seconds: Callable[[], Awaitable[float]],
        leadership: Leadership,
    ) -> None:
        """`uptime_seconds` asks the management API, which may be missing."""
        self._database, self._policy, self._leadership = database, policy, leadership
        self._workers, self._queues = workers, queues
        self._uptime_seconds = uptime_seconds
        self._looks: Mapping[str, ServiceLook] | None = None
        """None: another replica has looked meanwhile, so they have to be read."""
        self._looked_at: datetime | None = None
        self._last: FleetLook | None = None
        self._incarnation: int | None = None
        self._lost_at: datetime | None = None
        self._is_broker_away = False

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._policy.interval_seconds, self.tick, stop, name="service-watch")

    async def tick(self) -> None:
        try:
            await self._note_lost_connection()
            if not self._leadership.is_leader:
                self._looks = None
                return
            fleet = self._workers.looked
            if fleet is None or fleet is self._last:
                # To count one look twice would make two heartbeats of one.
                return
            await self._look(fleet, await self._queues.count_all(self._policy.executor_queues))
            self._last = fleet
        except Contended as error:
            raise Unavailable("database", f"the tables of dlq-handler are locked: {error}") from error

    async def _note_lost_connection(self) -> None:
        """On every replica: the next leader may be one whose connection broke before it led."""
        try:
            incarnation = await self._queues.connect()
        except Unavailable:
            if not self._is_broker_away:
                self._is_broker_away, self._lost_at = True, await self._now()
            raise
        if self._incarnation not in (None, incarnation) and not self._is_broker_away:
            self._lost_at = await self._now()
        self._incarnation, self._is_broker_away = incarnation, False

    async def _now(self) -> datetime:
        async with self._database.transaction() as tx:
            return await database_time(tx)

    async def _look(self, fleet: FleetLook, executor: Mapping[str, QueueCounts | None]) -> None:
        before = await self._read() if self._looks is None else self._looks
        # Until this is written: after an error it is not certain what the database has.
        self._looks = None
        now = await self._now()
        started_at = await self._started_at(before.values(), now)
        broker = BrokerRun(started_at=started_at, connection_lost_at=self._lost_at)
        workers = {self._policy.names.queue(one.id): one for one in fleet.fleet}
        counts_by_queue = {self._policy.names.queue(one): counts for one, counts in fleet.counts.items()}
        after = {
            queue: look_again(
                before.get(queue),
                queue=queue,
                consumers=counts.consumers if counts else 0,
                reporting=self._reporting(workers.get(queue)),
                broker=broker,
                looked_before=self._looked_at,
                now=now,
            )
            for queue, counts in (*executor.items(), *counts_by_queue.items())
        }
        changed = [look for queue, look in after.items() if before.get(queue) != look]
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            await store.keep_looks(tx, changed=changed, gone=before.keys() - after.keys(), at=now)
        self._looks, self._looked_at = after, now

    async def _read(self) -> Mapping[str, ServiceLook]:
        async with self._database.transaction() as tx:
            known = await store.all_looks(tx)
        self._looked_at = known.observed_at
        return known.by_queue

    async def _started_at(self, before: Collection[ServiceLook], now: datetime) -> datetime | None:
        """None: unknown, or of no interest."""
        if not any(look.may_learn_start(now) for look in before):
            return None
        try:
            started_at = now - timedelta(seconds=await self._uptime_seconds())
        except Unavailable:
            return None
        return same_start(started_at, before)

    def _reporting(self, worker: Worker | None) -> Reporting | None:
        if worker is None or worker.last_heartbeat is None:
            return None
        if not is_on_time(worker, policy=self._policy.availability):
            return None
        return Reporting(last_heartbeat=worker.last_heartbeat, is_inactive=worker.status == "inactive")
