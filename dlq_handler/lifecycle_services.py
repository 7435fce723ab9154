"""The services of the queue lifecycle. Beside app.py, which runs them."""

from collections.abc import Sequence

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.intake import DeadLetterConsumers, DeadLetterIntake
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.recorder import DeferringRecorder, LetterRecorder
from dlq_handler.dead_letters.retired import OwnQueueCheck, RetiredQueueWatch
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.writers import Writer
from dlq_handler.health import Readiness
from dlq_handler.lifecycle.orphan_watch import OrphanWatch
from dlq_handler.loop import Service
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings import Settings
from dlq_handler.settings.flows import flow_runner_of
from dlq_handler.settings.orphans import orphan_finder_of


def retired_queue_services(
    settings: Settings,
    link: AdminConnection,
    *,
    consumers: DeadLetterConsumers,
    ender: Ender[DeadLetter, Entry],
    deferring: tuple[DeferringRecorder, Ender[DeadLetter, Entry]],
    writer: Writer,
    readiness: Readiness,
    metrics: Metrics,
) -> Sequence[Service]:
    """Every replica receives the retired queue. Shadow mode takes no message from a queue that has no copy of it."""
    own = settings.dlq_handler
    if settings.is_shadow or not own.lifecycle.enabled:
        return []
    consumer = consumers.of_retired_queue(settings.worker_queues)
    watch = RetiredQueueWatch(link, consumer, writer)
    intake = DeadLetterIntake(
        consumer,
        ender,
        watch,
        None,
        own.pause,
        readiness=readiness,
        metrics=metrics,
        deferring=deferring,
        check=OwnQueueCheck(link, settings.worker_queues),
    )
    return [intake, watch]


def flow_services(
    settings: Settings,
    database: Database,
    address: BrokerAddress,
    *,
    leadership: Leadership,
    gate: Gate,
    writer: Writer,
    recorder: LetterRecorder,
    consumers: DeadLetterConsumers,
    holder: str,
    queues: QueueCounter,
) -> Sequence[Service]:
    """Shadow mode changes no queue."""
    lifecycle = settings.dlq_handler.lifecycle
    if settings.is_shadow or not lifecycle.enabled:
        return []
    runner = flow_runner_of(
        settings,
        database,
        address,
        leadership=leadership,
        gate=gate,
        writer=writer,
        recorder=recorder,
        consumers=consumers,
        holder=holder,
    )
    if not lifecycle.orphans.enabled:
        return [runner]
    finder = orphan_finder_of(settings, database, queues)
    return [runner, OrphanWatch(database, finder, leadership, gate, names=settings.worker_queues)]
