"""Turn settings into those who keep what operators see: the diagnoser and the chronicler."""

from collections.abc import Callable, Mapping

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.dead_letter_source import DeadLetterSource
from dlq_handler.broker.publisher import Publisher
from dlq_handler.broker.quiet_queues import QuietQueues
from dlq_handler.compose import instance_name
from dlq_handler.compose import view as compose_view
from dlq_handler.compose.backstop import leadership_policy
from dlq_handler.domain.availability import Availability
from dlq_handler.domain.patience import Patience
from dlq_handler.domain.view import OwnLink
from dlq_handler.services.chronicler import Chronicler, ChroniclerPolicy
from dlq_handler.services.diagnoser import Diagnoser
from dlq_handler.services.every import Backoff
from dlq_handler.services.gate import Gate
from dlq_handler.services.leadership import Leadership
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database


def diagnoser(
    settings: Settings,
    database: Database,
    link: AdminLink,
    *,
    leadership: Leadership,
    gate: Gate,
    queues: QuietQueues,
    source: DeadLetterSource,
    publisher: Publisher,
) -> Diagnoser:
    lookout = compose_view.lookout(
        settings,
        database,
        link,
        gate=gate.look,
        watched_seconds=lambda: gate.watched_seconds,
        queues=queues,
        own_unacknowledged=lambda: source.unacknowledged,
    )
    look_seconds = settings.dlq_handler.ui.look_seconds
    return Diagnoser(
        database,
        look=lookout.look,
        leadership=leadership,
        instance=instance_name(settings),
        patience=patience(settings, look_seconds),
        own_link=lambda: OwnLink(is_consuming=source.is_consuming, is_blocked=publisher.is_blocked),
        interval_seconds=look_seconds,
    )


def patience(settings: Settings, look_seconds: float) -> Patience:
    # Whoever met a server that was away may sleep for as long as that, and is looked at a look later.
    back_within_seconds = Backoff().most_seconds + look_seconds
    return Patience(
        opens_within_seconds=back_within_seconds,
        leads_within_seconds=max(back_within_seconds, leadership_policy(settings).taken_within_seconds),
    )


def chronicler(
    settings: Settings,
    database: Database,
    *,
    leadership: Leadership,
    gate: Gate,
    consuming_seconds: Callable[[], float],
    judged: Callable[[], int],
    availabilities: Callable[[], Mapping[int, Availability] | None],
) -> Chronicler:
    return Chronicler(
        database,
        ChroniclerPolicy(instance=instance_name(settings), is_shadow=settings.dlq_handler.shadow.enabled),
        leadership=leadership,
        gate=gate,
        consuming_seconds=consuming_seconds,
        judged=judged,
        availabilities=availabilities,
    )
