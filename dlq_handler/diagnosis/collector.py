"""Look at everything that a rescue depends on, and put it into one view.

Promises: each question has its own time limit, and one without an answer is unknown, never a guess; works while no
sidecar runs, and with any server down; reads only. Never: decides what any of it means.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.database.engine import Database
from dlq_handler.diagnosis.collector_database import DatabaseFacts, look_at_database
from dlq_handler.diagnosis.status_sql import Harm
from dlq_handler.diagnosis.view import (
    OFF,
    BrokerSeen,
    GateSeen,
    Off,
    QueueSeen,
    TopologySeen,
    Unknown,
    View,
    WorkerSeen,
)
from dlq_handler.errors import Contended, RowRejected, Unavailable
from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation, RegisteredWorker, is_on_time
from dlq_handler.safety.brake import BrakePolicy
from dlq_handler.tasks import task_group
from dlq_handler.timeouts.decide_unscheduled import UnscheduledPolicy
from dlq_handler.topology.checker import check_topology
from dlq_handler.topology.consumers import read_consumers
from dlq_handler.topology.decide_canary import CanaryPolicy, IntakeView, WorkerCanary, decide_canaries, proven
from dlq_handler.topology.finding import Expectation
from dlq_handler.workers.availability import is_history, standing_of
from dlq_handler.workers.service_look import ServiceLook
from dlq_handler.workers.sight import WorkerObservation

BROKER_AWAY = Unknown("the broker does not answer")

Fact = TypeVar("Fact")


async def answered(asking: Awaitable[Fact], *, within_seconds: float) -> Fact | Unknown:
    """The answer, or why there is none: one question without an answer must not end the others."""
    try:
        async with asyncio.timeout(within_seconds):
            return await asking
    except (Unavailable, Contended, RowRejected) as error:
        return Unknown(str(error))
    except TimeoutError:
        return Unknown(f"no answer within {within_seconds:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPolicy:
    availability: AvailabilityPolicy
    brake: BrakePolicy
    canary: CanaryPolicy | None
    """None: there are none."""
    lease: str | None
    """The name of the leader's; None: nobody looks for stale executions."""
    completed_queue: str
    requests_queue: str
    requests: UnscheduledPolicy
    is_shadow: bool
    within_seconds: float = 5.0
    """For one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    broker: BrokerSeen
    alarms: Sequence[str] | Unknown = BROKER_AWAY
    topology: TopologySeen | Unknown = BROKER_AWAY
    intake: QueueSeen | Unknown | Off = BROKER_AWAY
    completions: QueueSeen | Unknown = BROKER_AWAY
    requests: QueueSeen | Unknown = BROKER_AWAY
    queues: dict[int, QueueObservation | None] | Unknown = BROKER_AWAY


class Lookout:
    def __init__(
        self,
        database: Database,
        link: AdminConnection,
        api: ManagementApi,
        sight: WorkerObservation,
        policy: LookPolicy,
        *,
        queues: QueueCounter,
        expectation: Callable[[frozenset[int] | None], Expectation],
        gate: Callable[[], Awaitable[GateSeen | Unknown]],
        watched_seconds: Callable[[], float],
        own_unacknowledged: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`gate()` asks a replica. `watched_seconds()`: time without a break in which heartbeats were read.

        `own_unacknowledged()`: dead letters that this process holds; None: it does not consume.
        """
        self._database, self._link, self._api, self._sight = database, link, api, sight
        self._quiet = queues
        self._policy, self._expectation = policy, expectation
        self._gate, self._watched_seconds = gate, watched_seconds
        self._own_unacknowledged = own_unacknowledged

    async def look(self) -> View:
        async with task_group() as servers:
            # Side by side: each may take seconds to find that nobody answers.
            about_database = servers.create_task(
                look_at_database(
                    self._database,
                    brake=self._policy.brake,
                    lease=self._policy.lease,
                    canary_queue=self._expectation(None).blueprint.intake_queue,
                    requests_queue=self._policy.requests_queue,
                    requests=self._policy.requests,
                    ask=self._ask,
                )
            )
            about_broker = servers.create_task(self._look_at_broker(about_database))
            about_gate = servers.create_task(self._ask(self._gate()))
        database, broker = about_database.result(), about_broker.result()
        expected = self._expectation(None)
        return View(
            at=database.at or datetime.now(UTC),
            ttl_seconds=expected.ttl_ms / 1000,
            own_prefix=expected.own_consumer_tag_prefix,
            database=database.database,
            tables=database.tables,
            rights=database.rights,
            broker=broker.broker,
            alarms=broker.alarms,
            topology=broker.topology,
            intake=broker.intake,
            canaries=self._canaries(database, broker.intake, expected),
            gate=about_gate.result(),
            brake=database.brake,
            is_shadow=self._policy.is_shadow,
            leader=database.leader,
            outbox=database.outbox,
            workers=self._workers(database, broker.queues),
            requested=database.requested,
            at_request_limit=database.at_request_limit,
            republishes_requests=self._policy.requests.republishes,
            letters=database.letters,
            attunes_ends=database.attunes_ends,
            completions=broker.completions,
            requests=broker.requests,
            service_looks=database.service_looks,
        )

    async def _ask(self, asking: Awaitable[Fact]) -> Fact | Unknown:
        return await answered(asking, within_seconds=self._policy.within_seconds)

    async def _look_at_broker(self, about_database: asyncio.Task[DatabaseFacts]) -> BrokerFacts:
        reached = await self._ask(self._link.open())
        fleet = (await about_database).workers
        if isinstance(reached, Unknown):
            return BrokerFacts(broker=BrokerSeen(trouble=reached.explanation))
        ids = None if isinstance(fleet, Unknown) else frozenset(one.worker.id for one in fleet)
        expected = self._expectation(ids)
        intake = expected.blueprint.intake_queue
        return BrokerFacts(
            broker=BrokerSeen(),
            alarms=await self._ask(self._api.alarms()),
            topology=await self._ask(self._topology(expected)),
            intake=await self._ask(self._intake(intake)) if expected.blueprint.has_intake else OFF,
            completions=await self._ask(self._queue(self._policy.completed_queue)),
            requests=await self._ask(self._queue(self._policy.requests_queue)),
            queues=Unknown("no worker is known") if isinstance(fleet, Unknown) else await self._queues(fleet),
        )

    async def _topology(self, expected: Expectation) -> TopologySeen:
        report = await check_topology(self._link, self._api, expected, may_probe=False)
        return TopologySeen(checked=report.topology, limits=report.limits)

    async def _intake(self, name: str) -> QueueSeen:
        own = self._own_unacknowledged
        taken = await read_consumers(
            self._quiet.count,
            self._api,
            name,
            own_unacknowledged=own,
            has_canaries=self._policy.canary is not None,
        )
        return QueueSeen(name=name, taken=taken)

    async def _queue(self, name: str) -> QueueSeen:
        return QueueSeen(name=name, taken=await read_consumers(self._quiet.count, self._api, name))

    async def _queues(
        self, fleet: Sequence[RegisteredWorker]
    ) -> dict[int, QueueObservation | None] | Unknown:
        # Hosts keep the rows of dead workers for ever: those are asked for only if something waits for them.
        asked = [one.worker.id for one in fleet if one.scheduled or one.running or not is_history(one.worker)]
        found = await self._ask(self._sight.look(asked))
        if self._sight.broker_trouble is not None:
            return Unknown(self._sight.broker_trouble)
        return found

    def _workers(
        self, database: DatabaseFacts, queues: dict[int, QueueObservation | None] | Unknown
    ) -> Sequence[WorkerSeen] | Unknown:
        if isinstance(database.workers, Unknown):
            return database.workers
        # Without our own records a worker is told of all the same, and missed rather than not.
        nothing = Harm(ended_last_hour=None) if isinstance(database.harm, Unknown) else Harm()
        harm = {} if isinstance(database.harm, Unknown) else database.harm
        looks = _current_looks(database)
        return tuple(
            WorkerSeen(
                registered=one,
                standing=standing_of(
                    one.worker,
                    watched_seconds=self._watched_seconds(),
                    policy=self._policy.availability,
                ),
                queue=self._of_worker(one.worker.id, queues),
                ended_last_hour=harm.get(one.worker.id, nothing).ended_last_hour,
                expired_lately=harm.get(one.worker.id, nothing).expired_lately,
                was_stopped=one.was_stopped(self._policy.availability),
                is_on_time=is_on_time(one.worker, policy=self._policy.availability),
                look=looks.get(self._sight.queue_of(one.worker.id)),
            )
            for one in database.workers
        )

    def _of_worker(
        self, worker_id: int, queues: dict[int, QueueObservation | None] | Unknown
    ) -> QueueObservation | Unknown | None:
        if isinstance(queues, Unknown):
            return queues
        return queues.get(worker_id, Unknown(f"its queue: {self._sight.unknown_explanation(worker_id)}"))

    def _canaries(
        self, database: DatabaseFacts, intake: QueueSeen | Unknown | Off, expected: Expectation
    ) -> Sequence[WorkerCanary] | Unknown | Off:
        policy = self._policy.canary
        if policy is None or intake == OFF:
            return OFF
        if isinstance(database.workers, Unknown):
            return database.workers
        if isinstance(database.probes, Unknown):
            return database.probes
        if isinstance(intake, Unknown):
            return intake
        workers = [one.worker.id for one in database.workers if not is_history(one.worker)]
        view = _from_outside(intake, expected.own_consumer_tag_prefix)
        return decide_canaries(proven(database.probes), workers, view, policy, queue=intake.name)


def _current_looks(database: DatabaseFacts) -> Mapping[str, ServiceLook]:
    looks = database.service_looks
    if isinstance(looks, Unknown) or database.at is None or not looks.are_current(database.at):
        return {}
    return looks.by_queue


def _from_outside(intake: QueueSeen, own_prefix: str) -> IntakeView:
    """For probes that are `proven`: how long somebody has consumed does not matter for them."""
    taken = intake.taken
    if taken is None or taken.count == 0:
        return IntakeView(consuming_seconds=0.0, waiting=None if taken is None else taken.ready)
    return IntakeView(
        consuming_seconds=float("inf"),
        waiting=taken.ready,
        others=tuple(tag for tag in taken.tags or () if not tag.startswith(own_prefix)),
        unseen=taken.count if taken.tags is None else 0,
    )
