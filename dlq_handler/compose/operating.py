"""Turn settings into the one who acts for an operator, for one command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler import compose
from dlq_handler.services.judge_letters import LetterJudge
from dlq_handler.services.observer import Observer
from dlq_handler.services.operating import Operating
from dlq_handler.services.rejudge import Rejudger
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database


@asynccontextmanager
async def open_operating(settings: Settings) -> AsyncIterator[tuple[Operating, Database]]:
    """With the database that it acts on, to look before and afterwards."""
    async with compose.open_database(settings) as database:
        is_shadow = settings.dlq_handler.shadow.enabled
        yield Operating(database, None if is_shadow else _rejudger(settings, database)), database


def _rejudger(settings: Settings, database: Database) -> Rejudger:
    """Without a relay: what it announces waits in the outbox for a sidecar."""
    judge = LetterJudge(
        database,
        compose.judge_policy(settings, compose.lease_holder(settings)),
        brake=compose.brake(settings, database),
        gate=compose.gate(settings, database),
        observer=Observer(),
    )
    return Rejudger(database, judge, relay=None, observer=Observer())
