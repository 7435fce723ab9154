"""Collect the view: ask database, broker and safety gate, and put the answers together.

Promises: each question has its own time limit, and one without an answer is unknown, never a guess; works without a
replica, and with any server down; reads only. Never: decides what any of it means.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.diagnosis.answer import answer_of
from dlq_handler.diagnosis.ask_replica import AskedGate
from dlq_handler.diagnosis.collector_database import (
    CollectorOptions,
    DatabaseFacts,
    collect_from_database,
)
from dlq_handler.diagnosis.status_sql import Harm
from dlq_handler.diagnosis.view import (
    OFF,
    WITHOUT_BROKER,
    BrokerFact,
    GateFact,
    ObservedWorker,
    Off,
    OrphansFact,
    QueueFact,
    TopologyFact,
    Unknown,
    View,
)
from dlq_handler.host.worker import QueueObservation, RegisteredWorker, is_on_time
from dlq_handler.lifecycle.orphan_watch import OrphanFinder
from dlq_handler.tasks import task_group
from dlq_handler.topology.canary import IntakeView, WorkerCanary, decide_canaries, proven
from dlq_handler.topology.checker import check_topology
from dlq_handler.topology.consumers import read_consumers
from dlq_handler.topology.drift import Expectation
from dlq_handler.topology.system_queues import SystemQueueReader, SystemQueues
from dlq_handler.workers.availability import is_silent_for_a_day, standing_of
from dlq_handler.workers.queue_observer import WorkerQueueObserver
from dlq_handler.workers.service_observation import ServiceObservation

ORPHANS_SECONDS = 300.0
ORPHANS_LIMIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _BrokerFacts:
    broker: BrokerFact
    alarms: Sequence[str] | Unknown = WITHOUT_BROKER
    topology: TopologyFact | Unknown = WITHOUT_BROKER
    intake: QueueFact | Unknown | Off = WITHOUT_BROKER
    completions: QueueFact | Unknown = WITHOUT_BROKER
    requests: QueueFact | Unknown = WITHOUT_BROKER
    system_queues: SystemQueues | Unknown = WITHOUT_BROKER
    queues: dict[int, QueueObservation | None] | Unknown = WITHOUT_BROKER
    orphans: OrphansFact | Unknown | Off = WITHOUT_BROKER


class ViewCollector:
    def __init__(
        self,
        database: Database,
        link: AdminConnection,
        api: ManagementApi,
        observer: WorkerQueueObserver,
        options: CollectorOptions,
        *,
        queues: QueueCounter,
        expectation: Expectation,
        gate: AskedGate,
        source: QueueConsumer[DeadLetter] | None = None,
        orphans: OrphanFinder | None = None,
    ) -> None:
        """`source`: the intake of this process; None: a command observes, which has none. `orphans`: None: they are not
        counted.
        """
        self._database, self._link, self._api, self._observer = database, link, api, observer
        self._queues, self._system_queues = queues, SystemQueueReader(queues)
        self._options, self._expectation = options, expectation
        self._gate, self._source = gate, source
        self._orphans = orphans
        self._counted_orphans: OrphansFact | Unknown | Off = OFF
        self._count_orphans_at = float("-inf")

    async def collect(self) -> View:
        async with task_group() as servers:
            # Side by side: each may take seconds to find that the server does not answer.
            about_database = servers.create_task(collect_from_database(self._database, self._options))
            about_broker = servers.create_task(self._collect_from_broker(about_database))
            about_gate = servers.create_task(self.gate())
        database, broker = about_database.result(), about_broker.result()
        expected = self._expectation
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
            is_shadow=self._options.is_shadow,
            leader=database.leader,
            outbox=database.outbox,
            workers=self._workers(database, broker.queues),
            requested=database.requested,
            at_request_limit=database.at_request_limit,
            republishes_requests=self._options.monitor.republish_requests,
            letters=database.letters,
            attune_monitor=database.attune_monitor,
            completions=broker.completions,
            requests=broker.requests,
            system_queues=broker.system_queues,
            service_observations=database.service_observations,
            flows=database.flows,
            orphans=broker.orphans,
        )

    @property
    def is_shadow(self) -> bool:
        return self._options.is_shadow

    async def gate(self) -> GateFact | Unknown:
        return await answer_of(self._gate.ask())

    async def _collect_from_broker(self, about_database: asyncio.Task[DatabaseFacts]) -> _BrokerFacts:
        reached = await answer_of(self._link.open())
        fleet = (await about_database).workers
        if isinstance(reached, Unknown):
            orphans = OFF if self._orphans is None else WITHOUT_BROKER
            return _BrokerFacts(broker=BrokerFact(error=reached.explanation), orphans=orphans)
        ids = None if isinstance(fleet, Unknown) else frozenset(one.worker.id for one in fleet)
        expected = replace(self._expectation, worker_ids=ids)
        intake = expected.blueprint.intake_queue
        return _BrokerFacts(
            broker=BrokerFact(),
            alarms=await answer_of(self._api.alarms()),
            topology=await answer_of(self._topology(expected)),
            intake=await answer_of(self._intake(intake)) if expected.blueprint.has_intake else OFF,
            completions=await answer_of(self._queue(self._options.completed_queue)),
            requests=await answer_of(self._queue(self._options.requests_queue)),
            system_queues=await answer_of(self._system_queues.read()),
            queues=fleet if isinstance(fleet, Unknown) else await self._worker_queues(fleet),
            orphans=fleet if isinstance(fleet, Unknown) and self._orphans else await self._read_orphans(),
        )

    async def _read_orphans(self) -> OrphansFact | Unknown | Off:
        """Rarely: it counts the queues of every worker that ever was. OFF: not counted yet."""
        now = monotonic_seconds()
        # Before that an old heartbeat proves nothing, and no worker would seem to be gone.
        is_sure = self._gate.watched_seconds >= self._options.availability.unavailable_after_seconds
        if self._orphans is not None and is_sure and now >= self._count_orphans_at:
            self._count_orphans_at = now + ORPHANS_SECONDS
            self._counted_orphans = await answer_of(
                _count_orphans(self._orphans, self._gate.watched_seconds),
                within_seconds=ORPHANS_LIMIT_SECONDS,
            )
        return self._counted_orphans

    async def _topology(self, expected: Expectation) -> TopologyFact:
        report = await check_topology(self._link, self._api, expected, may_probe=False)
        return TopologyFact(checked=report.topology, limits=report.limits)

    async def _intake(self, name: str) -> QueueFact:
        consumers = await read_consumers(
            self._queues.count,
            self._api,
            name,
            own_unacknowledged=lambda: self._source.unacknowledged if self._source else None,
            has_canaries=self._options.canary is not None,
        )
        return QueueFact(name=name, consumers=consumers)

    async def _queue(self, name: str) -> QueueFact:
        return QueueFact(name=name, consumers=await read_consumers(self._queues.count, self._api, name))

    async def _worker_queues(
        self, fleet: Sequence[RegisteredWorker]
    ) -> dict[int, QueueObservation | None] | Unknown:
        # Hosts keep the rows of dead workers for ever: their queues are read only if executions wait for them.
        ids = [
            one.worker.id
            for one in fleet
            if one.scheduled or one.running or not is_silent_for_a_day(one.worker)
        ]
        found = await answer_of(self._observer.observe_fleet(ids))
        if self._observer.broker_error is not None:
            return Unknown(self._observer.broker_error)
        return found

    def _workers(
        self, database: DatabaseFacts, queues: dict[int, QueueObservation | None] | Unknown
    ) -> Sequence[ObservedWorker] | Unknown:
        if isinstance(database.workers, Unknown):
            return database.workers
        # Without dlq-handler's own records a worker counts as missed rather than not.
        nothing = Harm(ended_last_hour=None) if isinstance(database.harm, Unknown) else Harm()
        harm = {} if isinstance(database.harm, Unknown) else database.harm
        observations = _current_observations(database)
        availability = self._options.availability
        return tuple(
            ObservedWorker(
                registered=one,
                standing=standing_of(
                    one.worker, watched_seconds=self._gate.watched_seconds, policy=availability
                ),
                queue=self._worker_queue(one.worker.id, queues),
                ended_last_hour=harm.get(one.worker.id, nothing).ended_last_hour,
                expired_lately=harm.get(one.worker.id, nothing).expired_lately,
                was_stopped=one.was_stopped(availability),
                is_on_time=is_on_time(one.worker, policy=availability),
                observation=observations.get(self._observer.queue_of(one.worker.id)),
            )
            for one in database.workers
        )

    def _worker_queue(
        self, worker_id: int, queues: dict[int, QueueObservation | None] | Unknown
    ) -> QueueObservation | Unknown | None:
        if isinstance(queues, Unknown):
            return queues
        return queues.get(worker_id, Unknown(f"its queue: {self._observer.unknown_explanation(worker_id)}"))

    def _canaries(
        self, database: DatabaseFacts, intake: QueueFact | Unknown | Off, expected: Expectation
    ) -> Sequence[WorkerCanary] | Unknown | Off:
        policy = self._options.canary
        if policy is None or intake == OFF:
            return OFF
        if isinstance(database.workers, Unknown):
            return database.workers
        if isinstance(database.probes, Unknown):
            return database.probes
        if isinstance(intake, Unknown):
            return intake
        workers = [one.worker.id for one in database.workers if not is_silent_for_a_day(one.worker)]
        view = _intake_from_outside(intake, expected.own_consumer_tag_prefix)
        return decide_canaries(proven(database.probes), workers, view, policy, queue=intake.name)


async def _count_orphans(finder: OrphanFinder, watched_seconds: float) -> OrphansFact:
    found = await finder.find(link_age_seconds=watched_seconds)
    ready = [worker.ready for worker in found.orphans]
    return OrphansFact(
        queues=sum(len(worker.queues) for worker in found.orphans),
        workers=len(found.orphans),
        ready=None if None in ready else sum(one or 0 for one in ready),
        limits=found.limits,
    )


def _current_observations(database: DatabaseFacts) -> Mapping[str, ServiceObservation]:
    observations = database.service_observations
    if isinstance(observations, Unknown) or database.at is None or not observations.are_current(database.at):
        return {}
    return observations.by_queue


def _intake_from_outside(intake: QueueFact, own_prefix: str) -> IntakeView:
    """For canaries that are `proven`: how long a replica has consumed does not matter for them."""
    consumers = intake.consumers
    if consumers is None or consumers.count == 0:
        return IntakeView(consuming_seconds=0.0, waiting=None if consumers is None else consumers.ready)
    return IntakeView(
        consuming_seconds=float("inf"),
        waiting=consumers.ready,
        others=tuple(tag for tag in consumers.tags or () if not tag.startswith(own_prefix)),
        unseen=consumers.count if consumers.tags is None else 0,
    )
