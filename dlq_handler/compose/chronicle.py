"""Turn settings into those who keep what operators see: the diagnoser and the chronicler."""

from collections.abc import Callable, Mapping

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.compose import instance_name
from dlq_handler.compose import view as compose_view
from dlq_handler.domain.availability import Availability
from dlq_handler.services.chronicler import Chronicler, ChroniclerPolicy
from dlq_handler.services.diagnoser import Diagnoser
from dlq_handler.services.gate import Gate
from dlq_handler.services.leadership import Leadership
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database


def diagnoser(
    settings: Settings, database: Database, link: AdminLink, *, leadership: Leadership, gate: Gate
) -> Diagnoser:
    lookout = compose_view.lookout(
        settings, database, link, gate=gate.look, watched_seconds=lambda: gate.watched_seconds
    )
    return Diagnoser(
        database,
        look=lookout.look,
        leadership=leadership,
        instance=instance_name(settings),
        interval_seconds=settings.dlq_handler.ui.look_seconds,
    )


def chronicler(
    settings: Settings,
    database: Database,
    *,
    leadership: Leadership,
    gate: Gate,
    is_consuming: Callable[[], bool],
    judged: Callable[[], int],
    availabilities: Callable[[], Mapping[int, Availability] | None],
) -> Chronicler:
    return Chronicler(
        database,
        ChroniclerPolicy(instance=instance_name(settings), is_shadow=settings.dlq_handler.shadow.enabled),
        leadership=leadership,
        gate=gate,
        is_consuming=is_consuming,
        judged=judged,
        availabilities=availabilities,
    )
