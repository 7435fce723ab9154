"""The services of the timeout monitor. Beside app.py, which runs them."""

from collections.abc import Sequence

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.broker.publisher import PublishChecker, Publisher
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.writers import EventWriter, Writer
from dlq_handler.loop import Service
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.safety.publish_watch import PublishWatch
from dlq_handler.settings import Settings
from dlq_handler.settings.servers import connection_source_of, management_api_of
from dlq_handler.timeouts.completion_watch import CompletionWatch
from dlq_handler.timeouts.leader_scan import LeaderScan
from dlq_handler.timeouts.message_recorders import EndPublisher, RequestRecorder
from dlq_handler.timeouts.monitor import TimeoutMonitor
from dlq_handler.timeouts.reconciler import Reconciler
from dlq_handler.timeouts.recorder import SuspectRecorder, UnscheduledEndRecorder
from dlq_handler.timeouts.unscheduled import UnscheduledWatch
from dlq_handler.workers.processes import WorkerProcesses
from dlq_handler.workers.queue_observer import WorkerQueueObserver


def timeout_services(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    queues: QueueCounter,
    *,
    writer: Writer,
    leadership: Leadership,
    gate: Gate,
    worker_queues: WorkerQueueObserver,
    publisher: Publisher,
    consumer: QueueConsumer[DeadLetter],
    metrics: Metrics,
) -> Sequence[Service]:
    """`executor.enable_timeout_monitor` is Attune's switch for Attune's monitor, and switches nothing here."""
    own = settings.dlq_handler
    if not own.monitor.enabled:
        return []
    is_shadow, connections = settings.is_shadow, connection_source_of(settings)
    # What ends nothing is not for the brake to stop.
    event_writer = writer if is_shadow else EventWriter()
    options = settings.record_options

    suspects = SuspectRecorder(
        options, metrics, limits=settings.stale_limits, gate=gate, publishes=publisher.recorder
    )
    unscheduled, requests = UnscheduledEndRecorder(options, metrics), RequestRecorder(options, metrics)
    ends = EndPublisher(
        database, event_writer, leadership, options, metrics, batch_size=own.monitor.batch_size
    )
    scan = LeaderScan(database, leadership, gate)
    has_intake = settings.message_queue.rabbitmq.dead_letter.enabled
    return [
        PublishWatch(
            PublishChecker(link, publisher),
            publisher.recorder,
            deadline_seconds=settings.deadline_seconds,
        ),
        TimeoutMonitor(
            database,
            settings.stale_limits,
            ender=Ender(database, writer, suspects, own.monitor.batch_size, leadership=leadership),
            leadership=leadership,
            gate=gate,
            queues=worker_queues,
            publishes=publisher.recorder,
            metrics=metrics,
            intake=consumer.drain if has_intake else None,
            processes=None
            if connections is None
            else WorkerProcesses(database, connections, leadership, is_shadow=is_shadow),
        ),
        UnscheduledWatch(
            scan,
            own.monitor,
            queues,
            ends=Ender(database, writer, unscheduled, own.monitor.batch_size, leadership=leadership),
            requests=Ender(database, event_writer, requests, own.monitor.batch_size, leadership=leadership),
            is_shadow=is_shadow,
        ),
        Reconciler(
            scan,
            own.monitor,
            ends,
            queues,
            metrics,
            lookback_seconds=settings.message_queue.rabbitmq.dead_letter.ttl_ms / 1000,
        ),
        CompletionWatch(scan, own.monitor, ends, queues, management_api_of(settings, timeout_seconds=5.0)),
    ]
