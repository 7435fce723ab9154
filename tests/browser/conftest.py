"""One browser for all journeys and one living night for each file; every test opens tabs of its own.

On the session's loop, all of them: the browser and the workers of the night live there.
"""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from sandbox.servers import PostgreSQL, RabbitMQ
from tests.support.browser import chromium
from tests.support.night_world import NightWorld, night_world


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


# A file's own: between two files tests of other folders kill and restart the servers that it stands on.
@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def the_night(
    rabbitmq: RabbitMQ,
    postgres: PostgreSQL,
    attune_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[NightWorld]:
    """With a sender and a worker who would like to run scripts in the operator's browser."""
    name = f"night-{uuid.uuid4().hex[:12]}"
    amqp_url = await rabbitmq.create_vhost(name)
    database_url = await postgres.create_database(name, attune_template)
    folder: Path = tmp_path_factory.mktemp("night")
    async with night_world(
        folder, rabbitmq, amqp_url, database_url, is_hostile=True, has_tokens=True
    ) as world:
        yield world
    await rabbitmq.delete_vhost(name)
    await postgres.drop_database(name)
