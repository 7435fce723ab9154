"""Open the services that act for an operator, for one command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler import compose
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.endings.writers import LiveWriter
from dlq_handler.metric_labels import new_metrics
from dlq_handler.operations.operations import Operations
from dlq_handler.settings import Settings
from dlq_handler.settings.servers import open_database


@asynccontextmanager
async def open_operating(settings: Settings) -> AsyncIterator[tuple[Operations, Database]]:
    """With the database that it acts on, to read before and afterwards."""
    async with open_database(settings) as database:
        is_shadow = settings.dlq_handler.shadow.enabled
        yield Operations(database, None if is_shadow else _reprocessor(settings, database)), database


def _reprocessor(settings: Settings, database: Database) -> Reprocessor:
    """Without a relay: a completion event waits in the outbox until a replica publishes it."""
    metrics = new_metrics()
    gate = compose.gate(settings, database, metrics=metrics)
    brake = compose.brake(settings, database, metrics=metrics)
    letters = compose.letter_recorder(settings, gate, metrics)
    return Reprocessor(database, LiveWriter(gate, brake, relay=None), letters)
