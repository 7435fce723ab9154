"""The running sidecar. Knows every part; no part knows it.

Order of the end: intake first (it finishes its batch), the outbox relay last (it flushes what intake wrote), then the
listener, so that probes get an answer for as long as anything still works.
"""

import asyncio
from collections.abc import Sequence

import structlog

from dlq_handler import __version__, compose
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.clock import monotonic_seconds
from dlq_handler.compose import backstop, deferring, history
from dlq_handler.compose import canary as compose_canary
from dlq_handler.compose.listeners import Listeners
from dlq_handler.compose.metric_labels import new_metrics
from dlq_handler.compose.retention import retention_steps
from dlq_handler.compose.ui import ui_world
from dlq_handler.compose.worker_options import worker_options
from dlq_handler.database import migrate
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.commit import LetterDecider
from dlq_handler.dead_letters.intake import DeadLetterHandler, IntakePolicy
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.endings.database_watch import DatabaseWatch
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.history.retention import RetentionRunner
from dlq_handler.loop_watch import LoopWatch
from dlq_handler.readiness import Readiness
from dlq_handler.running import RunningServices, Service, running_services, wait_until_available
from dlq_handler.settings import Settings
from dlq_handler.tasks import task_group
from dlq_handler.timeouts.commit import StaleDecider
from dlq_handler.timeouts.slot_watch import SlotWatch
from dlq_handler.topology.intake_watch import IntakeWatch
from dlq_handler.web.own_thread import OtherLoop
from dlq_handler.web.world import UiWorld
from dlq_handler.workers.watch import WorkerWatch

log = structlog.get_logger()


class Sidecar:
    """One replica. `run(stop)` returns when everything has ended in good order."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.readiness, self.metrics = Readiness(), new_metrics()
        self.metrics.ready.set_function(lambda: float(self.readiness.is_ready))
        self._listeners = Listeners(settings, self.readiness, self.metrics, ui_world=self._ui_world)
        self._database = compose.database(settings)
        self._address = compose.broker_address(settings, metrics=self.metrics)
        self._publisher = compose.publisher(settings, self._address)
        lease_holder = compose.lease_holder(settings)
        policy = compose.relay_policy(settings)
        self._relay = OutboxRelay(
            self._database, self._publisher, policy, holder=lease_holder, metrics=self.metrics
        )
        self._keeper = compose.topology_keeper(settings, self._address, self._database)
        self._brake = compose.brake(settings, self._database, readiness=self.readiness, metrics=self.metrics)
        self._gate = compose.gate(settings, self._database, readiness=self.readiness, metrics=self.metrics)
        self._source = compose.source(settings, self._address)
        self._link = AdminConnection(self._address)
        self._queues = compose.quiet_queues(settings, self._link)
        self._sight = compose.worker_sight(settings, self._address, queues=self._queues)
        self._worker_watch = WorkerWatch(
            self._database,
            self._sight,
            compose.watch_policy(settings),
            watched_seconds=lambda: self._gate.watched_seconds,
            metrics=self.metrics,
        )
        self._decide = LetterDecider(
            self._database,
            compose.decision_policy(settings, lease_holder),
            brake=self._brake,
            gate=self._gate,
            metrics=self.metrics,
            may_lease=self._relay.has_room_for,
            offer=self._relay.offer,
        )
        self._reprocessor = Reprocessor(self._database, self._decide, self._relay, metrics=self.metrics)
        self._leadership = Leadership(
            self._database,
            backstop.leadership_policy(settings),
            holder=lease_holder,
            metrics=self.metrics,
            may_lead=lambda: self._gate.fits_schema,
        )
        self._stale_decide = StaleDecider(
            self._database,
            backstop.stale_decide_policy(settings, lease_holder),
            leadership=self._leadership,
            brake=self._brake,
            gate=self._gate,
            metrics=self.metrics,
            may_lease=self._relay.has_room_for,
            offer=self._relay.offer,
            publishes=self._publisher.recorder.view,
        )
        self._diagnoser = history.diagnoser(
            settings,
            self._database,
            self._link,
            leadership=self._leadership,
            gate=self._gate,
            queues=self._queues,
            source=self._source,
            publisher=self._publisher,
        )
        self.metrics.read_services_from(self._diagnoser.count_services)

    async def run(self, stop: asyncio.Event) -> None:
        ports = {"http_port": self._listeners.http_port, "ui_port": self._listeners.ui_port}
        log.info("sidecar.started", version=__version__, **ports)
        if self._is_shadow:
            self._tell_of_shadow()
        listener_done = asyncio.Event()
        async with running_services(stop) as services:
            services.start(self._listeners, listener_done)
            try:
                await self._prepare(services.ending)
                # Stopped while it waited for its servers: no work was taken, so there is none to finish.
                if not services.ending.is_set():
                    await self._serve(services)
            finally:
                listener_done.set()
                await self._close()
        log.info("sidecar.stopped")

    async def _close(self) -> None:
        """Side by side: each may wait seconds for a server that does not answer, and SIGTERM has not got their sum."""
        async with task_group() as closing:
            for close in (self._publisher.close, self._sight.close, self._link.close, self._database.dispose):
                closing.create_task(close())

    @property
    def _is_shadow(self) -> bool:
        return self._settings.dlq_handler.shadow.enabled

    def _tell_of_shadow(self) -> None:
        queue = self._settings.dlq_handler.shadow.queue
        log.warning("shadow.started", queue=queue, setting="dlq_handler.shadow.enabled")
        self.metrics.shadow.set(1)
        self.readiness.note("shadow", f"dry run: decides on copies from {queue}, changes nothing")

    async def _prepare(self, stop: asyncio.Event) -> None:
        """Check what we stand on, in the order in which we need it, before anything is taken from a queue."""
        wait_until = monotonic_seconds() + self._settings.dlq_handler.startup.wait_seconds
        await wait_until_available(lambda: migrate.upgrade(self._database), wait_until, stop)
        # Bound before ready: a letter that dies before its key is bound is lost without a trace.
        await wait_until_available(self._keeper.tick, wait_until, stop)

    async def _serve(self, services: RunningServices) -> None:
        grace_seconds = self._settings.dlq_handler.grace.shutdown_seconds
        self.readiness.liveness.watch()
        intake_done = asyncio.Event()
        for service in self._downstream():
            services.start(service, intake_done)
        for service in self._intake():
            services.start(service, services.ending)
        await services.ending.wait()
        log.info("sidecar.stop_requested", grace_seconds=grace_seconds)
        async with asyncio.timeout(grace_seconds):
            await services.wait(services.ending)
            intake_done.set()
            await services.wait(intake_done)

    def _intake(self) -> Sequence[Service]:
        """Those that take work up: they end first."""
        watch = IntakeWatch(
            self._source,
            api=compose.management_api(self._settings),
            own_tag_prefix=compose.CONSUMER_TAG_PREFIX,
            readiness=self.readiness,
            metrics=self.metrics,
            may_take=self._may_take,
        )
        self.metrics.bound_workers.set_function(lambda: float(len(self._keeper.bound_workers)))
        if not self._settings.message_queue.rabbitmq.dead_letter.enabled:
            log.warning("intake.disabled", setting="message_queue.rabbitmq.dead_letter.enabled")
            self.readiness.report("consumer", ok=True, detail="none: dead_letter.enabled is false")
            return [self._keeper, watch, *self._reprocessors(), *self._leaders()]
        handler = DeadLetterHandler(
            self._source,
            self._decide,
            self._relay,
            self._keeper,
            IntakePolicy(database_away_seconds=self._settings.dlq_handler.pause.database_outage_seconds),
            readiness=self.readiness,
            metrics=self.metrics,
            record_canaries=compose_canary.recorder(self._settings, self._database).record_received,
            deferrer=deferring.letter_deferrer(self._settings, self._database, metrics=self.metrics),
        )
        return [self._keeper, handler, watch, *self._reprocessors(), *self._leaders(*self._canaries(watch))]

    def _may_take(self) -> None:
        """Raises `Unavailable` while no letter may be taken. A shadow ends nothing, so no brake holds it."""
        self._gate.check()
        if not self._is_shadow:
            self._brake.check()

    def _reprocessors(self) -> Sequence[Service]:
        """None in shadow mode: kept letters of an earlier, real run are not for it to resolve."""
        return [] if self._is_shadow else [self._reprocessor]

    def _ui_world(self, stop: asyncio.Event, services: OtherLoop) -> UiWorld:
        """Called on the listeners' loop; `services` leads to this one."""
        return ui_world(
            self._settings,
            compose.ui_database(self._settings),
            services=services,
            diagnoser=self._diagnoser,
            reprocessor=None if self._is_shadow else self._reprocessor,
            sight=self._sight,
            link=self._link,
            stop=stop,
            source=self._source,
        )

    def _canaries(self, watch: IntakeWatch) -> Sequence[Service]:
        """In shadow mode too: they are to arrive in the queue of copies."""
        return compose_canary.watches(
            self._settings,
            self._database,
            self._link,
            self._address,
            leadership=self._leadership,
            keeper=self._keeper,
            intake=watch,
            publishes=self._publisher.recorder,
            readiness=self.readiness,
            metrics=self.metrics,
        )

    def _leaders(self, *others: Service) -> Sequence[Service]:
        """Those that work, or the half of whose work is done, on one replica only."""
        options = worker_options(
            self._settings,
            self._database,
            self._address,
            watch=self._worker_watch,
            leadership=self._leadership,
            decide=self._decide,
            relay=self._relay,
        )
        monitors = backstop.monitors(
            self._settings,
            self._database,
            self._queues,
            decide=self._stale_decide,
            leadership=self._leadership,
            brake=self._brake,
            gate=self._gate,
            sight=self._sight,
            relay=self._relay,
            publisher=self._publisher,
            source=self._source,
            metrics=self.metrics,
        )
        return [self._leadership, *monitors, *options, *others]

    def _downstream(self) -> Sequence[Service]:
        """Those that finish what intake wrote, and the watch that dates the link every decision rests on."""
        settings, own = self._settings, self._settings.dlq_handler
        return [
            # Notices of an earlier, real run are not for a shadow to publish.
            *([] if self._is_shadow else [self._relay]),
            self._brake,
            self._gate,
            self._worker_watch,
            backstop.service_watch(
                settings, self._database, self._queues, self._worker_watch, self._leadership
            ),
            self._diagnoser,
            history.history_recorder(
                self._settings,
                self._database,
                leadership=self._leadership,
                gate=self._gate,
                consuming_seconds=lambda: self._source.consuming_seconds,
                decided=lambda: self._decide.decided,
                availabilities=lambda: self._worker_watch.availabilities,
            ),
            DatabaseWatch(self._database, readiness=self.readiness, metrics=self.metrics),
            RetentionRunner(self._database, compose.retention_policy(self._settings), retention_steps()),
            SlotWatch(self._database, held_slot_seconds=own.monitor.held_slot_seconds, metrics=self.metrics),
            LoopWatch(self.metrics, self.readiness.liveness),
        ]
