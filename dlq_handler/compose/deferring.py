"""Turn settings into what records dead letters undecided."""

from dlq_handler.compose import instance_name, names
from dlq_handler.services.defer_letters import DeferPolicy, LetterDeferrer
from dlq_handler.services.observer import Observer
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database


def letter_deferrer(settings: Settings, store: Database, *, observer: Observer) -> LetterDeferrer | None:
    """None in shadow mode: copies are taken there, and a copy that the broker drops is no loss."""
    own = settings.dlq_handler
    if own.shadow.enabled:
        return None
    policy = DeferPolicy(
        after_deliveries=own.intake.defer_after_deliveries,
        instance=instance_name(settings),
        names=names(settings),
    )
    return LetterDeferrer(store, policy, observer=observer)
