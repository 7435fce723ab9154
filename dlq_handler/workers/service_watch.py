"""Find services of the host that run without consumers, and keep what was observed. On the leader.

Commands observe once and need the earlier observations; so does a new leader. Changes nothing on the broker, and asks
about worker queues nothing that the worker watch has not asked already.
"""

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.lease_sql import database_time
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames, WorkerStatus, is_on_time
from dlq_handler.loop import every
from dlq_handler.workers import service_observations_sql as store
from dlq_handler.workers.service_observation import (
    BrokerRun,
    Reporting,
    ServiceObservation,
    observe_again,
    same_start,
)
from dlq_handler.workers.watch import FleetCounts, WorkerWatch

INTERVAL_SECONDS = 5.0

# Without a change, commands need no newer time of the last observation than this.
WRITE_SECONDS = 20.0


class ServiceWatch:
    def __init__(
        self,
        database: Database,
        workers: WorkerWatch,
        queues: QueueCounter,
        api: ManagementApi,
        leadership: Leadership,
        *,
        names: WorkerQueueNames,
        executor_queues: Collection[str],
        availability: AvailabilityPolicy,
    ) -> None:
        """`api` may be missing."""
        self._database, self._leadership = database, leadership
        self._workers, self._queues, self._api = workers, queues, api
        self._names, self._executor_queues, self._availability = names, executor_queues, availability
        self._observations: Mapping[str, ServiceObservation] | None = None
        """None: another replica has observed meanwhile, so they have to be read."""
        self._checked_at: datetime | None = None
        self._last: FleetCounts | None = None
        self._incarnation: int | None = None
        self._lost_at: datetime | None = None
        self._is_broker_unavailable = False
        self._written_at = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        await every(INTERVAL_SECONDS, self.tick, stop, name="service-watch")

    async def tick(self) -> None:
        try:
            await self._note_lost_connection()
            if not self._leadership.is_leader:
                self._observations = None
                return
            fleet = self._workers.fleet_counts
            # Counted twice, one observation would make two heartbeats of one.
            if fleet is not None and fleet is not self._last:
                await self._observe(fleet, await self._queues.count_all(self._executor_queues))
                self._last = fleet
        except Contended as error:
            raise Unavailable("database", f"the tables of dlq-handler are locked: {error}") from error

    async def _note_lost_connection(self) -> None:
        """On every replica: the next leader may be one whose connection broke before it led."""
        try:
            incarnation = await self._queues.connect()
        except Unavailable:
            if not self._is_broker_unavailable:
                self._is_broker_unavailable, self._lost_at = True, await self._database_time()
            raise
        if self._incarnation not in (None, incarnation) and not self._is_broker_unavailable:
            self._lost_at = await self._database_time()
        self._incarnation, self._is_broker_unavailable = incarnation, False

    async def _database_time(self) -> datetime:
        async with self._database.transaction() as tx:
            return await database_time(tx)

    async def _observe(self, fleet: FleetCounts, executor: Mapping[str, QueueCounts | None]) -> None:
        before = await self._read() if self._observations is None else self._observations
        # Until this is written: after an error it is uncertain what the database has.
        self._observations = None
        uptime_seconds = await self._uptime_seconds(before.values())
        counts = {**executor, **{self._names.queue(one): counted for one, counted in fleet.counts.items()}}
        workers = {self._names.queue(one.id): one for one in fleet.fleet}
        async with self._database.transaction() as tx:
            now = await database_time(tx)
            started_at = _started_at(uptime_seconds, now, before.values())
            broker = BrokerRun(started_at=started_at, connection_lost_at=self._lost_at)
            # In a thread: for thousands of queues it takes longer than anything may hold the event loop.
            after = await asyncio.to_thread(self._observe_all, before, counts, workers, broker, now)
            changed = [one for queue, one in after.items() if before.get(queue) != one]
            removed = before.keys() - after.keys()
            if changed or removed or monotonic_seconds() - self._written_at >= WRITE_SECONDS:
                await self._leadership.fence(tx)
                await store.keep_observations(tx, changed=changed, removed=removed, at=now)
                self._written_at = monotonic_seconds()
        self._observations, self._checked_at = after, now

    def _observe_all(
        self,
        before: Mapping[str, ServiceObservation],
        counts: Mapping[str, QueueCounts | None],
        workers: Mapping[str, Worker],
        broker: BrokerRun,
        now: datetime,
    ) -> dict[str, ServiceObservation]:
        return {
            queue: observe_again(
                before.get(queue),
                queue=queue,
                consumers=counted.consumers if counted else 0,
                reporting=self._reporting(workers.get(queue)),
                broker=broker,
                last_checked_at=self._checked_at,
                now=now,
            )
            for queue, counted in counts.items()
        }

    async def _read(self) -> Mapping[str, ServiceObservation]:
        async with self._database.transaction() as tx:
            known = await store.read_all(tx)
        self._checked_at = known.observed_at
        return known.by_queue

    async def _uptime_seconds(self, before: Collection[ServiceObservation]) -> float | None:
        """Of the broker. None: unknown, or not needed."""
        at = self._checked_at
        if at is None or not any(one.may_learn_start(at) for one in before):
            return None
        try:
            return await self._api.uptime_seconds()
        except Unavailable:
            return None

    def _reporting(self, worker: Worker | None) -> Reporting | None:
        if worker is None or worker.last_heartbeat is None:
            return None
        if not is_on_time(worker, policy=self._availability):
            return None
        return Reporting(
            last_heartbeat=worker.last_heartbeat, is_inactive=worker.status == WorkerStatus.INACTIVE
        )


def _started_at(
    uptime_seconds: float | None, now: datetime, before: Collection[ServiceObservation]
) -> datetime | None:
    if uptime_seconds is None:
        return None
    return same_start(now - timedelta(seconds=uptime_seconds), before)
