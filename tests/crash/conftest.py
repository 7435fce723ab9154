"""Private servers for the crash tests, which kill, alarm and wipe them.

`vhost` and `database` of the whole suite come from these servers here. A test that stops one starts it again.
"""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.attune import schema
from sandbox.servers import PrivatePostgreSQL, PrivateRabbitMQ
from tests.crash.world import CrashWorld, a_world


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rabbitmq() -> AsyncIterator[PrivateRabbitMQ]:
    async with await PrivateRabbitMQ.launch() as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres() -> AsyncIterator[PrivatePostgreSQL]:
    """Durable: what was committed before a kill must be there after it."""
    async with await PrivatePostgreSQL.launch() as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def attune_template(postgres: PrivatePostgreSQL) -> AsyncIterator[str]:
    name = f"template_{uuid.uuid4().hex[:12]}"
    await schema.install(await postgres.create_database(name))
    yield name
    await postgres.drop_database(name)


@pytest.fixture
async def world(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[CrashWorld]:
    async with a_world(vhost, database, tmp_path) as one:
        yield one
