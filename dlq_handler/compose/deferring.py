"""Turn settings into what records dead letters undecided."""

from dlq_handler.compose import instance_name, names
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.defer import DeferPolicy, LetterDeferrer
from dlq_handler.metrics import Metrics
from dlq_handler.settings import Settings


def letter_deferrer(settings: Settings, store: Database, *, metrics: Metrics) -> LetterDeferrer | None:
    """None in shadow mode: copies are taken there, and a copy that the broker drops is no loss."""
    own = settings.dlq_handler
    if own.shadow.enabled:
        return None
    policy = DeferPolicy(
        after_deliveries=own.intake.defer_after_deliveries,
        instance=instance_name(settings),
        names=names(settings),
    )
    return LetterDeferrer(store, policy, metrics=metrics)
