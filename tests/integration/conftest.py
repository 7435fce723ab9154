"""Our store on a database with stock Attune's schema, and the host's own hand on the same tables."""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dlq_handler.sandbox.attune.database import Database as AttuneDatabase
from dlq_handler.sandbox.servers import PostgreSQL
from dlq_handler.store import migrate
from dlq_handler.store.engine import Database
from tests.integration.store.host import Host


@pytest.fixture
async def store(database: str) -> AsyncIterator[Database]:
    store = Database(database, application_name="store-test")
    await migrate.upgrade(store)
    yield store
    await store.dispose()


@pytest.fixture
async def host(database: str) -> AsyncIterator[Host]:
    attune = await AttuneDatabase.open(database)
    yield Host(attune)
    await attune.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def ui_database(postgres: PostgreSQL, attune_template: str) -> AsyncIterator[str]:
    """The URL of a database with our tables, one for all that ask over HTTP: to make it takes longer than a test."""
    name = f"ui_{uuid.uuid4().hex[:12]}"
    url = await postgres.create_database(name, attune_template)
    store = Database(url)
    await migrate.upgrade(store)
    await store.dispose()
    yield url
    await postgres.drop_database(name)


@pytest.fixture
async def ui_store(ui_database: str) -> AsyncIterator[Database]:
    """Our tables in that database, empty."""
    store = Database(ui_database, application_name="ui-test")
    async with store.transaction() as tx:
        rows = await tx.rows(
            "SELECT quote_ident(table_name) AS name FROM information_schema.tables"
            " WHERE table_schema = :schema AND table_name <> 'alembic_version'",
            schema=store.own_schema,
        )
        await tx.run(f"TRUNCATE {', '.join(f'own.{row.name}' for row in rows)} RESTART IDENTITY")
    yield store
    await store.dispose()
