"""The database as the settings describe it. Nothing is connected until it is used.

Apart from the broker, whose libraries take as long to import as `status` takes to answer.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler.database.engine import Database
from dlq_handler.database.link import silence_within
from dlq_handler.settings.model import Settings


def database_of(settings: Settings) -> Database:
    use = settings.dlq_handler.database
    return Database(
        settings.database.url.get_secret_value(),
        host_schema=settings.database.schema_name,
        own_schema=settings.dlq_handler.schema_name,
        pool_size=use.pool_size,
        connect_timeout_seconds=use.connect_timeout_seconds,
        statement_timeout_ms=use.statement_timeout_ms,
        lock_timeout_ms=use.lock_timeout_ms,
        application_name=f"dlq-handler {settings.replica}",
        silence_seconds=silence_within(settings.worker_unavailable_after_seconds),
    )


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """For one command: closed at the end."""
    database = database_of(settings)
    try:
        yield database
    finally:
        await database.dispose()


def ui_database_of(settings: Settings) -> Database:
    """For dashboard and API: a small pool with short statements, used on the listeners' event loop only."""
    use, ui = settings.dlq_handler.database, settings.dlq_handler.ui
    return Database(
        settings.database.url.get_secret_value(),
        host_schema=settings.database.schema_name,
        own_schema=settings.dlq_handler.schema_name,
        pool_size=ui.pool_size,
        connect_timeout_seconds=use.connect_timeout_seconds,
        statement_timeout_ms=min(ui.statement_timeout_ms, use.statement_timeout_ms),
        lock_timeout_ms=use.lock_timeout_ms,
        application_name=f"dlq-handler {settings.replica} ui",
    )
