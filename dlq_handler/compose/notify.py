"""Turn settings into the one who tells a webhook, inside a sidecar or for a command."""

from dlq_handler.compose import instance_name
from dlq_handler.domain.webhook_message import Sender
from dlq_handler.services.diagnoser import Diagnoser
from dlq_handler.services.leadership import Leadership
from dlq_handler.services.notifier import Notifier, NotifierPolicy
from dlq_handler.services.observer import Observer
from dlq_handler.services.webhook import Webhook
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database


def webhook(settings: Settings) -> Webhook | None:
    """None: nobody is to be told."""
    own = settings.dlq_handler.notify
    if own.webhook_url is None:
        return None
    return Webhook(
        own.webhook_url.get_secret_value(),
        authorization=None if own.authorization is None else own.authorization.get_secret_value(),
        timeout_seconds=own.timeout_seconds,
    )


def sender(settings: Settings) -> Sender:
    ui = settings.dlq_handler.ui
    return Sender(
        instance=instance_name(settings),
        environment=ui.environment,
        dashboard_url=ui.external_url,
        runbook_url=ui.runbook_url,
    )


def notifiers(
    settings: Settings,
    database: Database,
    diagnoser: Diagnoser,
    leadership: Leadership,
    *,
    observer: Observer,
) -> list[Notifier]:
    """One, or none where nobody is to be told."""
    hook = webhook(settings)
    if hook is None:
        return []
    return [
        Notifier(
            database,
            hook,
            NotifierPolicy(cooldown_seconds=settings.dlq_handler.notify.cooldown_seconds),
            diagnoses=lambda: None if diagnoser.latest is None else diagnoser.latest.diagnoses,
            leadership=leadership,
            sender=sender(settings),
            observer=observer,
        )
    ]
