"""Our store on a database with stock Attune's schema, the host's own hand on the same tables, and one test's vhost."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import pytest_asyncio

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from sandbox.attune.database import Database as AttuneDatabase
from sandbox.attune.topology import verify_redeclare
from sandbox.servers import PostgreSQL, RabbitMQ
from tests.support.host_tables import Host
from tests.support.sidecar import Command, SidecarProcess


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
def template(request: pytest.FixtureRequest, attune_template: str) -> str:
    """A test that asks for `store` gets a database with our tables, any other one as Attune leaves it."""
    if "store" not in request.fixturenames:
        return attune_template
    migrated: str = request.getfixturevalue("migrated_template")
    return migrated


@pytest.fixture
async def store(database: str) -> AsyncIterator[Database]:
    store = Database(database, application_name="store-test")
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
            " WHERE table_schema = :schema AND table_name NOT IN ('alembic_version', 'compatibility')",
            schema=store.own_schema,
        )
        await tx.run(f"TRUNCATE {', '.join(f'own.{row.name}' for row in rows)} RESTART IDENTITY")
    yield store
    await store.dispose()


@pytest.fixture
async def link(vhost: str) -> AsyncIterator[AdminConnection]:
    async with AdminConnection(BrokerAddress(urls=[vhost])) as opened:
        yield opened


@pytest.fixture
def vhost_name(vhost: str) -> str:
    return unquote(urlsplit(vhost).path.removeprefix("/"))


@pytest.fixture
def api(rabbitmq: RabbitMQ, vhost_name: str) -> ManagementApi:
    parts = urlsplit(rabbitmq.management_url)
    url = f"{parts.scheme}://{rabbitmq.user}:{rabbitmq.password}@{parts.netloc}"
    return ManagementApi(url, vhost=vhost_name)


@pytest.fixture
async def stock(vhost: str) -> None:
    """Stock Attune with the queues of worker 1, declared by its own services."""
    await verify_redeclare(vhost, {1: 300_000})


@pytest.fixture
def command(rabbitmq: RabbitMQ, vhost: str, database: str, tmp_path: Path) -> Command:
    """dlq-handler's commands as an operator runs them; arguments are settings."""
    parts = urlsplit(rabbitmq.management_url)

    def with_settings(**environment: str) -> SidecarProcess:
        api = f"{parts.scheme}://{rabbitmq.user}:{rabbitmq.password}@{parts.netloc}"
        return SidecarProcess(
            tmp_path,
            amqp_url=vhost,
            database_url=database,
            name="cli",
            environment={"ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": api, **environment},
        )

    return with_settings
