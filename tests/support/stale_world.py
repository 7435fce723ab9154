"""A monitor on a real database, with a broker and a clock that tests can set."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import DrainTracker
from dlq_handler.broker.publish_times import PublishRecorder, PublishView
from dlq_handler.broker.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.options import OutboxOptions, RecordOptions
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.endings.writers import LiveWriter, ShadowWriter
from dlq_handler.errors import Unavailable
from dlq_handler.host.names import REQUESTS_QUEUE
from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.safety.options import GateOptions
from dlq_handler.timeouts.case import StaleLimits
from dlq_handler.timeouts.monitor import TimeoutMonitor
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.timeouts.recorder import SuspectRecorder
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.processes import WorkerProcesses
from dlq_handler.workers.queue_observer import WorkerQueueObserver
from tests.support.builders import COMPLETIONS
from tests.support.deciding import HeldRelay
from tests.support.fail_safe import a_brake
from tests.support.host_tables import Host


async def publish_outbox(store: Database, amqp_url: str) -> None:
    publisher = Publisher(BrokerAddress(urls=[amqp_url]), publish_timeout_seconds=5)
    relay = OutboxRelay(
        store, publisher, OutboxOptions(), publish_timeout_seconds=5, holder="relay", metrics=new_metrics()
    )
    try:
        await relay.tick()
    finally:
        await publisher.close()


LIMITS = StaleLimits(
    monitor=MonitorOptions(
        confirm_after_seconds=30, held_timeout_seconds=7200, canceling_timeout_seconds=600
    ),
    deadline_seconds=330,
    after_ttl_seconds=30,
    availability=AvailabilityPolicy(unavailable_after_seconds=90),
)
BUSY = QueueObservation(consumers=1, ready=0, unacked=3)
EMPTY = QueueObservation(consumers=1, ready=0, unacked=0)
UNATTENDED = QueueObservation(consumers=0, ready=0)
HOUR = 3600.0


class SetObservation(WorkerQueueObserver):
    """What the broker would answer; the queue of a worker that was not set is unknown."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueObservation | None] = {}
        self.asked: list[set[int]] = []
        self.asked_quietly: list[set[int]] = []
        self.longest_ttl: int | None = 300_000
        self.asked_for_ttl: list[Sequence[int]] = []
        self.requests: QueueCounts | None = None

    async def observe(self, worker_ids: Collection[int]) -> dict[int, QueueObservation | None]:
        self.asked.append(set(worker_ids))
        return {one: self.queues[one] for one in worker_ids if one in self.queues}

    async def observe_quietly(self, worker_ids: Collection[int]) -> dict[int, QueueObservation | None]:
        self.asked_quietly.append(set(worker_ids))
        return {one: self.queues[one] for one in worker_ids if one in self.queues}

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        self.asked_for_ttl.append(worker_ids)
        return self.longest_ttl

    async def count_queue(self, queue: str) -> QueueCounts | None:
        assert queue == REQUESTS_QUEUE
        return self.requests


class SetPublishes(PublishRecorder):
    set_view = PublishView(quick_seconds=24 * HOUR, confirmed_seconds_ago=1)

    def view(self) -> PublishView:
        return self.set_view


class SetQueue(QueueCounter):
    """One queue of the executor, as the test describes it."""

    def __init__(self, counts: QueueCounts | None) -> None:
        self.counts = counts
        self.unavailable: Unavailable | None = None

    async def count_known(self, queue: str) -> QueueCounts | None:  # the test has one queue
        if self.unavailable is not None:
            raise self.unavailable
        return self.counts


class LongOpenGate(Gate):
    """We have watched for long, unless a test says otherwise."""

    watched = HOUR

    @property
    def watched_seconds(self) -> float:
        return self.watched


class Replica:
    def __init__(
        self,
        store: Database,
        queue_observer: SetObservation,
        *,
        name: str = "one",
        batch_size: int = 100,
        limit: int = 0,
        is_shadow: bool = False,
        intake: DrainTracker | None = None,
        connections: ConnectionSource | None = None,
    ) -> None:
        self.metrics = new_metrics()
        self.gate = LongOpenGate(
            store,
            GateOptions(unknown_percent=0),
            unavailable_after_seconds=90,
            metrics=self.metrics,
        )
        self.leadership = Leadership(
            store,
            "shadow leader" if is_shadow else "leader",
            holder=name,
            metrics=self.metrics,
        )
        limits = replace(LIMITS, monitor=LIMITS.monitor.model_copy(update={"batch_size": batch_size}))
        self._record = SetPublishes()
        self.relay = HeldRelay()
        brake = a_brake(store, limit=limit)
        self.ender = Ender(
            store,
            ShadowWriter(self.gate) if is_shadow else LiveWriter(self.gate, brake, self.relay),
            SuspectRecorder(
                RecordOptions(replica=name, destination=COMPLETIONS, is_shadow=is_shadow),
                self.metrics,
                limits=limits,
                gate=self.gate,
                publishes=self._record,
            ),
            batch_size,
            leadership=self.leadership,
        )
        self.monitor = TimeoutMonitor(
            store,
            limits,
            ender=self.ender,
            leadership=self.leadership,
            gate=self.gate,
            queues=queue_observer,
            publishes=self._record,
            metrics=self.metrics,
            intake=intake,
            processes=None
            if connections is None
            else WorkerProcesses(store, connections, self.leadership, is_shadow=is_shadow),
        )

    @property
    def publishes(self) -> PublishView:
        return self._record.set_view

    @publishes.setter
    def publishes(self, view: PublishView) -> None:
        self._record.set_view = view

    @property
    def found(self) -> dict[tuple[str, str], float]:
        """Decisions that the metrics counted, by original status and outcome."""
        [family] = self.metrics.stale_executions.collect()
        return {
            (sample.labels["original_status"], sample.labels["outcome"]): sample.value
            for sample in family.samples
            if sample.value
        }

    @property
    def scans(self) -> float | None:
        return self.metrics.registry.get_sample_value("dlq_handler_scan_seconds_count")

    async def scan(self) -> None:
        """Take the lease, if it is free, and scan once."""
        await self.leadership.tick()
        await self.monitor.tick()


class StaleWorld:
    def __init__(self, store: Database, host: Host) -> None:
        self.store, self.host, self.queue_observer = store, host, SetObservation()

    def a_replica(self, **changes: Any) -> Replica:
        return Replica(self.store, self.queue_observer, **changes)

    async def a_worker(
        self, *, heartbeat_age_seconds: float | None = 0.0, queue: QueueObservation | None = BUSY
    ) -> int:
        worker_id = await self.host.add_worker(heartbeat_age_seconds=heartbeat_age_seconds)
        self.queue_observer.queues[worker_id] = queue
        return worker_id

    async def a_dead_worker(self, *, queue: QueueObservation | None = UNATTENDED) -> int:
        return await self.a_worker(heartbeat_age_seconds=HOUR, queue=queue)

    async def stale_ones(
        self, count: int = 1, *, status: str = "scheduled", age_seconds: float = HOUR, **columns: Any
    ) -> list[int]:
        ids = await self.host.add_executions(count, status=status, **columns)
        await self.make_old(ids, age_seconds)
        return ids

    async def a_stale_one(self, **how: Any) -> int:
        [one] = await self.stale_ones(**how)
        return one

    async def make_old(self, ids: Sequence[int], age_seconds: float = HOUR) -> None:
        """Without the triggers, one of which would make them new."""
        await self.host.session.execute(
            "SET session_replication_role = replica;"
            f"UPDATE execution SET updated = now() - interval '{age_seconds} seconds'"
            f" WHERE id IN ({','.join(map(str, ids))});"
            "SET session_replication_role = DEFAULT"
        )

    async def looks_age(self, seconds: float) -> None:
        """As if so much time had passed since the last look."""
        await self.host.session.execute(
            "UPDATE dlq_handler.worker_observation SET observed_at = observed_at - make_interval(secs => $1),"
            " unavailable_since = unavailable_since - make_interval(secs => $1),"
            " empty_since = empty_since - make_interval(secs => $1),"
            " unconsumed_since = unconsumed_since - make_interval(secs => $1)",
            seconds,
        )

    async def status(self, execution_id: int) -> str:
        return str((await self.host.execution(execution_id))["status"])

    async def statuses(self, ids: Sequence[int]) -> set[str]:
        return {await self.status(one) for one in ids}

    async def decisions(self) -> list[Mapping[str, Any]]:
        return await self.host.session.fetch("SELECT * FROM dlq_handler.stale_decision ORDER BY id")

    async def changes(self) -> list[tuple[int, str]]:
        """Every change of a status that was ever made."""
        rows = await self.host.session.fetch(
            "SELECT entity_id, new_values ->> 'status' AS status FROM execution_history"
            " WHERE operation = 'UPDATE' AND new_values ? 'status' ORDER BY entity_id"
        )
        return [(row["entity_id"], row["status"]) for row in rows]
