"""Turn settings into the one who acts for an operator, for one command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler import compose
from dlq_handler.compose.metric_labels import new_metrics
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.commit import LetterJudge
from dlq_handler.dead_letters.reprocess import Rejudger
from dlq_handler.operations.operations import Operating
from dlq_handler.settings import Settings


@asynccontextmanager
async def open_operating(settings: Settings) -> AsyncIterator[tuple[Operating, Database]]:
    """With the database that it acts on, to look before and afterwards."""
    async with compose.open_database(settings) as database:
        is_shadow = settings.dlq_handler.shadow.enabled
        yield Operating(database, None if is_shadow else _rejudger(settings, database)), database


def _rejudger(settings: Settings, database: Database) -> Rejudger:
    """Without a relay: what it announces waits in the outbox for a sidecar."""
    metrics = new_metrics()
    judge = LetterJudge(
        database,
        compose.judge_policy(settings, compose.lease_holder(settings)),
        brake=compose.brake(settings, database, metrics=metrics),
        gate=compose.gate(settings, database, metrics=metrics),
        metrics=metrics,
    )
    return Rejudger(database, judge, relay=None, metrics=metrics)
