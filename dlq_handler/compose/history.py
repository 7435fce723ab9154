"""The diagnoser of a replica."""

from functools import partial

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.compose import view as compose_view
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.diagnosis.ask_replica import ask_own_gate
from dlq_handler.diagnosis.check_replica import Patience
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.diagnosis.view import OwnConnections
from dlq_handler.loop import Backoff
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings import Settings


def diagnoser(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    *,
    leadership: Leadership,
    gate: Gate,
    queues: QueueCounter,
    source: QueueConsumer[DeadLetter],
    publisher: Publisher,
) -> Diagnoser:
    collector = compose_view.view_collector(
        settings,
        database,
        link,
        gate=partial(ask_own_gate, gate),
        watched_seconds=lambda: gate.watched_seconds,
        queues=queues,
        own_unacknowledged=lambda: source.unacknowledged,
    )
    interval_seconds = settings.dlq_handler.ui.refresh_seconds
    return Diagnoser(
        database,
        collector,
        leadership=leadership,
        replica=settings.replica,
        patience=patience(settings, interval_seconds),
        own_connections=lambda: OwnConnections(
            is_consuming=source.is_consuming, is_blocked=publisher.is_blocked
        ),
        interval_seconds=interval_seconds,
    )


def patience(settings: Settings, interval_seconds: float) -> Patience:
    # A service that met an unavailable server may sleep for as long as that, and is observed one interval later.
    back_within_seconds = Backoff().most_seconds + interval_seconds
    return Patience(
        opens_within_seconds=back_within_seconds,
        leads_within_seconds=max(back_within_seconds, settings.leadership.taken_within_seconds),
    )
