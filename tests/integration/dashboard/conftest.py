"""A browser without scripts, on a record of its own for each test."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from dlq_handler.sandbox.servers import PostgreSQL
from dlq_handler.store import migrate
from dlq_handler.store.engine import Database
from dlq_handler.surface.web.world import UiWorld
from tests.support.ui import a_ui_world, asking


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def migrated_template(postgres: PostgreSQL, attune_template: str) -> AsyncIterator[str]:
    """With our own tables too: to copy it takes a fraction of what migrating takes, and here are many small tests."""
    name = f"template_{uuid.uuid4().hex[:12]}"
    made = Database(await postgres.create_database(name, attune_template))
    await migrate.upgrade(made)
    await made.dispose()
    yield name
    await postgres.drop_database(name)


@pytest.fixture
async def database(postgres: PostgreSQL, migrated_template: str) -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield await postgres.create_database(name, migrated_template)
    async with asyncio.timeout(30):
        await postgres.drop_database(name)


@pytest.fixture
async def store(database: str) -> AsyncIterator[Database]:
    store = Database(database)
    yield store
    await store.dispose()


@pytest.fixture
async def world(store: Database) -> UiWorld:
    return await a_ui_world(store)


@pytest.fixture
async def browser(world: UiWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(world) as client:
        yield client
