"""Our own tables: made once, by whoever comes first, wherever they are wanted."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from dlq_handler.database import migrate
from dlq_handler.database.apply_migrations import alembics_head
from dlq_handler.database.engine import Database
from dlq_handler.errors import SchemaUnfit, Unavailable
from sandbox.attune.database import bare_connection
from sandbox.servers import PostgreSQL

OUR_TABLES = {
    "alembic_version",
    "letter",
    "outbox",
    "stale_decision",
    "worker_observation",
    "service_observation",
    "worker_connection",
    "lease",
    "progress",
    "logout",
    "brake",
    "change_count",
    "canary",
    "letter_group",
    "letter_minute",
    "history_event",
    "repeated_request",
    "observed_minute",
    "worker_change",
    "diagnosis_change",
    "operation",
    "unconsumed_interval",
}


async def tables_in(url: str, schema: str) -> set[str]:
    async with bare_connection(url) as connection:
        rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    return {row["tablename"] for row in rows}


@pytest.fixture
async def plain_role(postgres: PostgreSQL, database: str) -> AsyncIterator[str]:
    """The URL of `database` for a role without any right of its own; the role's name is the user in it."""
    role = f"plain_{uuid.uuid4().hex[:12]}"
    await postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'plain'")
    parts = urlsplit(database)
    yield urlunsplit(parts._replace(netloc=f"{role}:plain@{parts.netloc.rpartition('@')[2]}"))
    async with bare_connection(database) as connection:
        await connection.execute(f"DROP OWNED BY {role} CASCADE")
    await postgres.execute(f"DROP ROLE {role}")


async def test_replicas_that_start_together_make_the_tables_once(database: str) -> None:
    replicas = [Database(database) for _ in range(4)]
    async with asyncio.TaskGroup() as together:
        for replica in replicas:
            together.create_task(migrate.upgrade(replica))
    assert await migrate.is_current(replicas[0])
    assert await tables_in(database, "dlq_handler") == OUR_TABLES
    for replica in replicas:
        await replica.dispose()


async def test_tables_and_their_version_live_in_the_schema_that_is_configured(database: str) -> None:
    store = Database(database, own_schema='Our "own" schema')
    before = await tables_in(database, "attune"), await tables_in(database, "public")
    await migrate.upgrade(store)
    await migrate.check_current(store)
    assert await tables_in(database, 'Our "own" schema') == OUR_TABLES
    assert (await tables_in(database, "attune"), await tables_in(database, "public")) == before
    await store.dispose()


async def test_missing_tables_are_named_with_the_way_out(database: str) -> None:
    store = Database(database)
    assert not await migrate.is_current(store)
    with pytest.raises(SchemaUnfit, match="dlq-handler migrate"):
        await migrate.check_current(store)
    await store.dispose()


async def test_tables_of_a_newer_program_are_left_alone(store: Database, database: str) -> None:
    async with bare_connection(database) as connection:
        await connection.execute("UPDATE dlq_handler.alembic_version SET version_num = '9999'")
    with pytest.raises(Unavailable, match="newer dlq-handler"):
        await migrate.upgrade(store)
    assert not await migrate.is_current(store)


async def test_role_that_may_not_create_schemas_migrates_one_made_for_it(
    database: str, plain_role: str
) -> None:
    role = urlsplit(plain_role).username
    async with bare_connection(database) as connection:
        await connection.execute(f"CREATE SCHEMA dlq_handler AUTHORIZATION {role}")
    store = Database(plain_role)
    await migrate.upgrade(store)
    assert await migrate.is_current(store)
    await store.dispose()


async def test_role_that_may_create_nothing_is_content_with_current_tables(
    store: Database, database: str, plain_role: str
) -> None:
    role = urlsplit(plain_role).username
    async with bare_connection(database) as connection:
        await connection.execute(
            f"GRANT USAGE ON SCHEMA dlq_handler TO {role};"
            f"GRANT SELECT ON dlq_handler.alembic_version TO {role}"
        )
    humble = Database(plain_role)
    await migrate.upgrade(humble)
    await humble.dispose()


def test_the_newest_file_is_the_head_that_alembic_finds() -> None:
    assert migrate.head() == alembics_head()
