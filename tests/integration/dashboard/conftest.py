"""A browser without scripts, on a record of its own for each test."""

from collections.abc import AsyncIterator

import httpx
import pytest

from dlq_handler.database.engine import Database
from dlq_handler.web.world import UiWorld
from tests.support.ui import a_ui_world, asking


@pytest.fixture
async def world(store: Database) -> UiWorld:
    return await a_ui_world(store)


@pytest.fixture
async def browser(world: UiWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(world) as client:
        yield client
