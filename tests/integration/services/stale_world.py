"""A monitor on a real database, with a broker and a clock that tests can set."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dlq_handler.broker.intake_drain import IntakeDrain
from dlq_handler.domain.gate import GatePolicy
from dlq_handler.domain.publishes import PublishView
from dlq_handler.domain.stale_case import StalePolicy
from dlq_handler.domain.stale_verdict import StaleOutcome
from dlq_handler.domain.worker import AvailabilityPolicy, QueueSight
from dlq_handler.services.gate import Gate
from dlq_handler.services.judge_stale import StaleJudge, StaleJudgePolicy
from dlq_handler.services.leadership import Leadership, LeadershipPolicy
from dlq_handler.services.observer import Observer
from dlq_handler.services.readiness import Readiness
from dlq_handler.services.timeout_monitor import MonitorPolicy, TimeoutMonitor
from dlq_handler.store.engine import Database
from tests.integration.store.host import Host
from tests.support.fail_safe import a_brake

POLICY = StalePolicy(
    horizon_seconds=330,
    grace_seconds=30,
    confirm_after_seconds=30,
    held_timeout_seconds=7200,
    canceling_timeout_seconds=600,
    availability=AvailabilityPolicy(unavailable_after_seconds=90),
)
BUSY = QueueSight(consumers=1, ready=0, unacked=3)
EMPTY = QueueSight(consumers=1, ready=0, unacked=0)
UNATTENDED = QueueSight(consumers=0, ready=0)
HOUR = 3600.0


class SetSight:
    """What the broker would say; a worker that was not set cannot be asked about."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueSight | None] = {}
        self.asked: list[set[int]] = []
        self.longest_ttl: int | None = None

    async def look(self, worker_ids: Collection[int]) -> Mapping[int, QueueSight | None]:
        self.asked.append(set(worker_ids))
        return {one: self.queues[one] for one in worker_ids if one in self.queues}

    async def longest_ttl_ms(self) -> int | None:
        return self.longest_ttl


class LongOpenGate(Gate):
    """We have watched for long, unless a test says otherwise."""

    watched = HOUR

    @property
    def watched_seconds(self) -> float:
        return self.watched


class Counting(Observer):
    def __init__(self) -> None:
        self.found: list[tuple[str, StaleOutcome]] = []
        self.sweeps = 0

    def stale_found(self, original_status: str, outcome: StaleOutcome) -> None:
        self.found.append((original_status, outcome))

    def sweep_finished(self, seconds: float) -> None:
        self.sweeps += 1


class Replica:
    def __init__(
        self,
        store: Database,
        sight: SetSight,
        *,
        name: str = "one",
        page_size: int = 100,
        limit: int = 0,
        is_shadow: bool = False,
        intake: IntakeDrain | None = None,
    ) -> None:
        self.observer = Counting()
        self.gate = LongOpenGate(
            store,
            GatePolicy(unknown_percent=0, unavailable_after_seconds=90),
            readiness=Readiness(),
            observer=self.observer,
        )
        self.leadership = Leadership(
            store,
            LeadershipPolicy(name="shadow leader" if is_shadow else "leader"),
            holder=name,
            observer=self.observer,
        )
        policy = StaleJudgePolicy(
            stale=POLICY,
            instance=name,
            lease_holder=name,
            exchange="attune.executions",
            routing_key="execution.completed",
            lease_seconds=60,
            is_shadow=is_shadow,
            page_size=page_size,
        )
        self.judge = StaleJudge(
            store,
            policy,
            leadership=self.leadership,
            brake=a_brake(store, limit=limit),
            gate=self.gate,
            observer=self.observer,
            publishes=lambda: self.publishes,
        )
        self.publishes = PublishView(quick_seconds=24 * HOUR, confirmed_seconds_ago=1)
        self.monitor = TimeoutMonitor(
            store,
            MonitorPolicy(interval_seconds=60, page_size=page_size, stale=POLICY),
            judge=self.judge,
            leadership=self.leadership,
            gate=self.gate,
            sight=sight,
            relay=None,
            observer=self.observer,
            intake=intake,
        )

    async def sweep(self) -> None:
        """Lead, if nobody else does, and look once."""
        await self.leadership.tick()
        await self.monitor.tick()


class StaleWorld:
    def __init__(self, store: Database, host: Host) -> None:
        self.store, self.host, self.sight = store, host, SetSight()

    def a_replica(self, **changes: Any) -> Replica:
        return Replica(self.store, self.sight, **changes)

    async def a_worker(
        self, *, heartbeat_age_seconds: float | None = 0.0, queue: QueueSight | None = BUSY
    ) -> int:
        worker_id = await self.host.add_worker(heartbeat_age_seconds=heartbeat_age_seconds)
        self.sight.queues[worker_id] = queue
        return worker_id

    async def a_dead_worker(self, *, queue: QueueSight | None = UNATTENDED) -> int:
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
            "UPDATE dlq_handler.worker_look SET looked_at = looked_at - make_interval(secs => $1),"
            " unavailable_since = unavailable_since - make_interval(secs => $1),"
            " empty_since = empty_since - make_interval(secs => $1),"
            " unattended_since = unattended_since - make_interval(secs => $1)",
            seconds,
        )

    async def status(self, execution_id: int) -> str:
        return str((await self.host.execution(execution_id))["status"])

    async def statuses(self, ids: Sequence[int]) -> set[str]:
        return {await self.status(one) for one in ids}

    async def verdicts(self) -> list[Mapping[str, Any]]:
        return await self.host.session.fetch("SELECT * FROM dlq_handler.stale_verdict ORDER BY id")

    async def changes(self) -> list[tuple[int, str]]:
        """Every change of a status that was ever made."""
        rows = await self.host.session.fetch(
            "SELECT entity_id, new_values ->> 'status' AS status FROM execution_history"
            " WHERE operation = 'UPDATE' AND new_values ? 'status' ORDER BY entity_id"
        )
        return [(row["entity_id"], row["status"]) for row in rows]
