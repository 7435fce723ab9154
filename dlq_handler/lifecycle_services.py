"""The services of the queue lifecycle. Beside app.py, which runs them."""

from collections.abc import Callable, Sequence

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.dead_letters.intake import DeadLetterConsumers, DeadLetterIntake
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.recorder import DeferringRecorder
from dlq_handler.dead_letters.retired import OwnQueueCheck, RetiredQueueWatch
from dlq_handler.endings.ender import Ender
from dlq_handler.health import Readiness
from dlq_handler.loop import Service
from dlq_handler.metrics import Metrics
from dlq_handler.settings import Settings


def retired_queue_services(
    settings: Settings,
    link: AdminConnection,
    *,
    consumers: DeadLetterConsumers,
    ender: Ender[DeadLetter, Entry],
    deferring: tuple[DeferringRecorder, Ender[DeadLetter, Entry]],
    may_take: Callable[[], None],
    readiness: Readiness,
    metrics: Metrics,
) -> Sequence[Service]:
    """Every replica receives the retired queue. Shadow mode takes no message from a queue that has no copy of it."""
    own = settings.dlq_handler
    if settings.is_shadow or not own.lifecycle.enabled:
        return []
    consumer = consumers.of_retired_queue(settings.worker_queues)
    watch = RetiredQueueWatch(link, consumer, may_take=may_take)
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
