"""Our store on a database with stock Attune's schema, and the host's own hand on the same tables."""

from collections.abc import AsyncIterator

import pytest

from dlq_handler.sandbox.attune.database import Database as AttuneDatabase
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
