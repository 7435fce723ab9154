"""One replica: every service is constructed here, in the order of the rooms, and passed to the others as an object.

Order of the end: services that take up work end first (the intake finishes its batch), those that finish it end last
(the outbox relay publishes what was written). The listeners end after both, so that probes are answered until then.
"""

from collections.abc import Sequence

import structlog

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX
from dlq_handler.broker.publisher import Publisher
from dlq_handler.dashboard.site import Site
from dlq_handler.database.leadership import LEASE_SECONDS, RENEW_SECONDS, Leadership
from dlq_handler.dead_letters.drain import QueueDrainer
from dlq_handler.dead_letters.intake import DeadLetterConsumers, DeadLetterIntake
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.recorder import DeferringRecorder, LetterRecorder
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.diagnosis.ask_replica import OwnGate
from dlq_handler.diagnosis.check_replica import Patience
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.endings.database_watch import DatabaseWatch
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.endings.writers import LiveWriter, RecordsWriter, ShadowWriter, Writer
from dlq_handler.health import Readiness
from dlq_handler.history.recorder import HistoryRecorder
from dlq_handler.history.retention import RetentionRunner
from dlq_handler.host.names import COMPLETED_QUEUE, REQUESTS_QUEUE
from dlq_handler.lifecycle_services import flow_services, retired_queue_services
from dlq_handler.loop import Backoff, LoopWatch, Service
from dlq_handler.rooms import RETENTION_STEPS, new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.safety.state_reader import StateReader
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import database_of
from dlq_handler.settings.orphans import orphan_finder_of
from dlq_handler.settings.servers import broker_of, management_api_of, view_collector
from dlq_handler.timeout_services import timeout_services
from dlq_handler.timeouts.reconciler import SlotWatch
from dlq_handler.topology.canary_sender import CanarySender
from dlq_handler.topology.canary_watch import CanaryRecorder, CanaryWatch
from dlq_handler.topology.intake_watch import IntakeWatch
from dlq_handler.topology.keeper import TopologyKeeper
from dlq_handler.ui import PageRefresher, UiApp, ui_world
from dlq_handler.web.listeners import Listeners, WebServer, most_connections, ops_app
from dlq_handler.workers.queue_observer import WorkerQueueObserver
from dlq_handler.workers.service_watch import ServiceWatch
from dlq_handler.workers.watch import WorkerWatch

log = structlog.get_logger()

STATE_SECONDS = 2.0


class Replica:
    """The services of one replica. `run.py` starts and ends them."""

    def __init__(self, settings: Settings) -> None:
        own, holder = settings.dlq_handler, settings.new_lease_holder()
        self.settings, self._holder = settings, holder
        self.readiness, self.metrics = Readiness(), new_metrics()
        self.metrics.ready.set_function(lambda: float(self.readiness.is_ready))
        # First: a port that is taken ends the start before anything else is opened.
        connections = most_connections(pooled=own.database.pool_size + own.ui.pool_size)
        self.listeners = Listeners(own.http, own.ui, connections=connections)

        # Servers.
        self.database = database_of(settings)
        self._address = broker_of(settings, metrics=self.metrics)
        self.link = AdminConnection(self._address)
        self.publisher = Publisher(self._address, publish_timeout_seconds=own.broker.publish_timeout_seconds)
        self._queues = QueueCounter(self.link, api=management_api_of(settings, timeout_seconds=5.0))

        # Safety.
        self._brake = Brake(
            self.database,
            own.brake,
            batch_size=own.batch.size,
            replica=settings.replica,
            metrics=self.metrics,
        )
        self._gate = Gate(
            self.database,
            own.gate,
            unavailable_after_seconds=settings.worker_unavailable_after_seconds,
            metrics=self.metrics,
        )
        self._leadership = Leadership(
            self.database,
            settings.lease,
            holder=holder,
            metrics=self.metrics,
            may_lead=lambda: self._gate.fits_schema,
        )

        self._state_reader = StateReader(
            self.database,
            gate=self._gate,
            brake=self._brake,
            interval_seconds=min(STATE_SECONDS, own.worker.watch_interval_seconds),
        )

        # Workers.
        self._worker_queues = WorkerQueueObserver(
            self.link,
            api=management_api_of(settings),
            names=settings.worker_queues,
            confirm_after_seconds=own.monitor.confirm_after_seconds,
            queues=self._queues,
        )
        self._worker_watch = WorkerWatch(
            self.database,
            self._worker_queues,
            self._leadership,
            self._gate,
            availability=settings.availability,
            confirm_after_seconds=own.monitor.confirm_after_seconds,
            metrics=self.metrics,
        )

        # Endings.
        self._relay = OutboxRelay(
            self.database,
            self.publisher,
            own.outbox,
            publish_timeout_seconds=own.broker.publish_timeout_seconds,
            holder=holder,
            metrics=self.metrics,
        )
        self._writer: Writer = (
            ShadowWriter(self._gate)
            if settings.is_shadow
            else LiveWriter(self._gate, self._brake, self._relay)
        )

        # Topology.
        self.keeper = TopologyKeeper(
            self.link,
            settings.blueprint,
            self._state_reader,
            own.topology,
            interval_seconds=own.worker.watch_interval_seconds,
        )
        self.metrics.bound_workers.set_function(lambda: float(len(self.keeper.bound_workers)))

        # Dead letters.
        self._consumers = DeadLetterConsumers(
            self._address,
            self.link,
            own.intake,
            own.batch,
            prefetch=settings.prefetch,
            tag=settings.new_consumer_tag(),
            is_shadow=settings.is_shadow,
        )
        self._consumer = self._consumers.of_queue(
            settings.blueprint.intake_queue, priority=own.intake.consumer_priority
        )
        self._letter_recorder = LetterRecorder(
            settings.record_options,
            self.metrics,
            gate=self._gate,
            availability=settings.availability,
        )
        self._letters = Ender(self.database, self._writer, self._letter_recorder, own.batch.size)
        self._reprocessor = Reprocessor(self.database, self._writer, self._letter_recorder)

        # Diagnosis.
        self._diagnoser = Diagnoser(
            self.database,
            view_collector(
                settings,
                self.database,
                self.link,
                OwnGate(self._gate),
                queues=self._queues,
                observer=self._worker_queues,
                source=self._consumer,
                orphans=orphan_finder_of(settings, self.database, self._queues),
            ),
            leadership=self._leadership,
            replica=settings.replica,
            patience=Patience.of(
                interval_seconds=own.ui.refresh_seconds,
                backoff_seconds=Backoff().most_seconds,
                lease_seconds=LEASE_SECONDS + RENEW_SECONDS,
            ),
            source=self._consumer,
            publisher=self.publisher,
            brake=self._brake,
            gate=self._gate,
            readiness=self.readiness,
            interval_seconds=own.ui.refresh_seconds,
        )
        self.metrics.read_services_from(self._diagnoser.count_services)
        self.metrics.read_system_queues_from(self._diagnoser.count_missing_queues)
        self.metrics.read_flows_from(self._diagnoser.flow_figures)

        # Web.
        world = ui_world(
            settings,
            connections=connections,
            main_database=self.database,
            workers=self._worker_queues,
            link=self.link,
            consumer=self._consumer,
            reprocessor=self._reprocessor,
            diagnoser=self._diagnoser,
        )
        site = Site(world=world)
        self.web = WebServer(
            self.listeners,
            ops_app=ops_app(self.readiness, self.metrics, self._gate, self._diagnoser),
            ui_app=UiApp(site),
            world=world,
            beside=[PageRefresher(site)],
        )

    def services_that_end_first(self) -> Sequence[Service]:
        """Those that take up work."""
        watch = IntakeWatch(
            self._consumer,
            self._writer,
            api=management_api_of(self.settings),
            own_tag_prefix=CONSUMER_TAG_PREFIX,
            readiness=self.readiness,
            metrics=self.metrics,
        )
        # Dead letters on record from an earlier, real run are not for shadow mode to resolve.
        reprocessor = [] if self.settings.is_shadow else [self._reprocessor]
        return [
            self.keeper,
            *self._intake(),
            watch,
            *retired_queue_services(
                self.settings,
                self.link,
                consumers=self._consumers,
                ender=self._letters,
                deferring=self._deferring(),
                writer=self._writer,
                readiness=self.readiness,
                metrics=self.metrics,
            ),
            *reprocessor,
            self._leadership,
            *flow_services(
                self.settings,
                self.database,
                self._address,
                leadership=self._leadership,
                gate=self._gate,
                writer=self._writer,
                recorder=self._letter_recorder,
                consumers=self._consumers,
                holder=self._holder,
                queues=self._queues,
            ),
            *self._timeouts(),
            *self._drain(),
            *self._canaries(watch),
        ]

    def services_that_end_last(self) -> Sequence[Service]:
        """Those that finish what the others have written, and those that keep watch until the end."""
        settings, own = self.settings, self.settings.dlq_handler
        # Completion events of an earlier, real run are not for shadow mode to publish.
        relay = [] if settings.is_shadow else [self._relay]
        return [
            *relay,
            self._state_reader,
            self._worker_watch,
            ServiceWatch(
                self.database,
                self._worker_watch,
                self._queues,
                management_api_of(settings, timeout_seconds=5.0),
                self._leadership,
                names=settings.worker_queues,
                executor_queues=(COMPLETED_QUEUE, REQUESTS_QUEUE),
                availability=settings.availability,
            ),
            self._diagnoser,
            HistoryRecorder(
                self.database,
                replica=settings.replica,
                leadership=self._leadership,
                gate=self._gate,
                brake=self._brake,
                consumer=None if settings.is_shadow else self._consumer,
                decided=lambda: self._letter_recorder.recorded,
                worker_watch=self._worker_watch,
            ),
            DatabaseWatch(
                self.database, readiness=self.readiness, metrics=self.metrics, features=settings.features
            ),
            RetentionRunner(self.database, settings.retention, RETENTION_STEPS),
            SlotWatch(self.database, own.monitor, self.metrics),
            LoopWatch(self.metrics, self.readiness.liveness),
        ]

    def _intake(self) -> Sequence[Service]:
        settings, own = self.settings, self.settings.dlq_handler
        if not settings.message_queue.rabbitmq.dead_letter.enabled:
            log.warning("intake.disabled", setting="message_queue.rabbitmq.dead_letter.enabled")
            self.readiness.report("consumer", ok=True, detail="none: dead_letter.enabled is false")
            return []
        canaries = CanaryRecorder(self.database, queue=self._consumer.queue, replica=settings.replica)
        return [
            DeadLetterIntake(
                self._consumer,
                self._letters,
                self.keeper,
                canaries,
                own.pause,
                readiness=self.readiness,
                metrics=self.metrics,
                # A copy that the broker drops is no loss, so shadow mode defers none.
                deferring=None if settings.is_shadow else self._deferring(),
            )
        ]

    def _deferring(self) -> tuple[DeferringRecorder, Ender[DeadLetter, Entry]]:
        own = self.settings.dlq_handler
        recorder = DeferringRecorder(
            self.settings.record_options, self.metrics, after_deliveries=own.intake.defer_after_deliveries
        )
        return recorder, Ender(self.database, RecordsWriter(), recorder, own.batch.size)

    def _drain(self) -> Sequence[Service]:
        """Shadow mode takes no message from a worker's queue."""
        settings = self.settings
        if settings.is_shadow or not settings.dlq_handler.worker.drain_queues:
            return []
        return [
            QueueDrainer(
                self.database,
                self._worker_watch,
                self._leadership,
                self._letters,
                consumers=self._consumers,
                names=settings.worker_queues,
            )
        ]

    def _timeouts(self) -> Sequence[Service]:
        return timeout_services(
            self.settings,
            self.database,
            self.link,
            self._queues,
            writer=self._writer,
            leadership=self._leadership,
            gate=self._gate,
            worker_queues=self._worker_queues,
            publisher=self.publisher,
            consumer=self._consumer,
            metrics=self.metrics,
        )

    def _canaries(self, watch: IntakeWatch) -> Sequence[Service]:
        """In shadow mode too: they must arrive in the queue of copies."""
        settings, canary = self.settings, self.settings.dlq_handler.canary
        if not (settings.message_queue.rabbitmq.dead_letter.enabled and canary.enabled):
            return []
        sender = CanarySender(
            self.database,
            self.link,
            self.publisher,
            settings.blueprint,
            ttl_ms=canary.ttl_ms,
            replica=settings.replica,
        )
        return [
            CanaryWatch(
                self.database,
                sender,
                canary,
                leadership=self._leadership,
                intake=watch,
                keeper=self.keeper,
                metrics=self.metrics,
            )
        ]
