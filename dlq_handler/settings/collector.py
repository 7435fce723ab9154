"""The view collector, as the settings describe it: that of a replica, or of a command."""

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.diagnosis.ask_replica import AskedGate
from dlq_handler.diagnosis.collector import ViewCollector
from dlq_handler.diagnosis.collector_database import CollectorOptions
from dlq_handler.host.names import COMPLETED_QUEUE, REQUESTS_QUEUE
from dlq_handler.settings.model import Settings
from dlq_handler.settings.servers import management_api_of
from dlq_handler.workers.queue_observer import WorkerQueueObserver

# A person waits for the answer.
CALL_TIMEOUT_SECONDS = 5.0


def view_collector(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    gate: AskedGate,
    *,
    queues: QueueCounter | None = None,
    source: QueueConsumer[DeadLetter] | None = None,
) -> ViewCollector:
    """In a replica: `queues` are those of its background checks, `source` is its intake. A command has neither."""
    api = management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS)
    queues = queues or QueueCounter(link, names=api.queue_names, asks_all_once=True)
    sight = WorkerQueueObserver(
        link,
        api=api,
        names=settings.worker_queues,
        # Each probe leaves lines in the broker's log, and a view is collected again and again.
        probes_ttl=False,
        queues=queues,
    )
    return ViewCollector(
        database,
        link,
        api,
        sight,
        _options(settings),
        queues=queues,
        expectation=settings.expectation,
        gate=gate,
        source=source,
    )


def _options(settings: Settings) -> CollectorOptions:
    own = settings.dlq_handler
    return CollectorOptions(
        availability=settings.availability,
        brake=settings.dlq_handler.brake,
        canary=own.canary if own.canary.enabled else None,
        lease=settings.lease if own.monitor.enabled else None,
        intake_queue=settings.blueprint.intake_queue,
        completed_queue=COMPLETED_QUEUE,
        requests_queue=REQUESTS_QUEUE,
        monitor=settings.dlq_handler.monitor,
        is_shadow=own.shadow.enabled,
        attune_monitor_is_enabled=settings.executor.enable_timeout_monitor,
    )
