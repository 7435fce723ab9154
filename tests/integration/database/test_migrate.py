"""The tables of dlq-handler: created once by any replica, upgraded one migration at a time, used by older programs."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import copy
from urllib.parse import urlsplit, urlunsplit

import pytest

from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from dlq_handler.database.migrate import build_index
from dlq_handler.errors import SchemaUnfit
from sandbox.attune.database import bare_connection
from sandbox.servers import PostgreSQL


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
    with pytest.raises(SchemaUnfit, match="dlq-handler migrate"):
        await migrate.check_usable(replicas[0])
    async with asyncio.TaskGroup() as together:
        for replica in replicas:
            together.create_task(migrate.upgrade(replica))
    assert (await migrate.read_version(replicas[0])).version == max(migrate.known_versions())
    assert {"letter", "outbox", "compatibility"} <= await tables_in(database, "dlq_handler")
    for replica in replicas:
        await replica.dispose()


async def test_tables_and_their_version_live_in_the_schema_that_is_configured(
    store: Database, database: str
) -> None:
    elsewhere = Database(database, own_schema='Our "own" schema')
    before = await tables_in(database, "attune"), await tables_in(database, "public")
    await migrate.upgrade(elsewhere)
    await migrate.check_usable(elsewhere)
    assert await tables_in(database, 'Our "own" schema') == await tables_in(database, store.own_schema)
    assert (await tables_in(database, "attune"), await tables_in(database, "public")) == before
    await elsewhere.dispose()


async def test_a_newer_schema_is_used_with_a_note_unless_it_needs_a_newer_program(
    store: Database, database: str
) -> None:
    async with bare_connection(database) as connection:
        await connection.execute("UPDATE dlq_handler.alembic_version SET version_num = '9999'")
        found = await migrate.upgrade(store)
        assert (found.version, found.problem) == ("9999", None)
        assert found.note is not None
        await connection.execute("UPDATE dlq_handler.compatibility SET least_program_version = '99.0.0'")
    with pytest.raises(SchemaUnfit, match=r"99\.0\.0 or newer"):
        await migrate.upgrade(store)


async def test_tables_of_before_the_first_release_are_neither_used_nor_changed(database: str) -> None:
    store = Database(database)
    async with bare_connection(database) as connection:
        await connection.execute(
            "CREATE SCHEMA dlq_handler; CREATE TABLE dlq_handler.alembic_version (version_num text);"
            "INSERT INTO dlq_handler.alembic_version VALUES ('0021')"
        )
    with pytest.raises(SchemaUnfit, match="cannot be upgraded"):
        await migrate.upgrade(store)
    assert await tables_in(database, "dlq_handler") == {"alembic_version"}
    await store.dispose()


SCRATCH = """
revision = "9999"
down_revision = "{newest}"
CONCURRENT_INDEXES = {{
    "letter_scratch_idx": "CREATE INDEX CONCURRENTLY letter_scratch_idx ON own.letter (died_at)",
}}


def upgrade() -> None:
    from alembic import op
    op.execute("ALTER TABLE letter ADD COLUMN scratch text")
    op.execute("UPDATE compatibility SET least_program_version = '0.0.9'")
"""


async def test_a_migration_builds_its_indexes_while_others_write(
    store: Database, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain build would block every writer until it is done."""
    for file in migrate.VERSIONS.glob("[0-9]*.py"):
        copy(file, tmp_path)
    (tmp_path / "9999_scratch.py").write_text(SCRATCH.format(newest=max(migrate.known_versions())))
    monkeypatch.setattr(migrate, "VERSIONS", tmp_path)
    migrate.known_versions.cache_clear()
    async with bare_connection(database) as writer:
        upgrading = asyncio.create_task(migrate.upgrade(store))
        while not upgrading.done():
            await writer.execute(
                "INSERT INTO dlq_handler.letter (key, reason, exchange, routing_key, body, body_size, outcome,"
                " explanation, received_at, decided_at, replica)"
                " SELECT gen_random_uuid(), '', '', '', '', 0, 'unrelated', '', now(), now(), ''"
            )
            await asyncio.sleep(0)
        found = await upgrading
        is_valid = await writer.fetchval(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = 'dlq_handler.letter_scratch_idx'::regclass"
        )
    migrate.known_versions.cache_clear()
    assert (found.version, found.least_program_version, is_valid) == ("9999", "0.0.9", True)


async def test_an_index_whose_build_was_interrupted_is_built_anew(store: Database, database: str) -> None:
    statement = "CREATE UNIQUE INDEX CONCURRENTLY broken_idx ON own.change_count (changed)"
    async with bare_connection(database) as connection:
        await connection.execute("INSERT INTO dlq_handler.change_count VALUES (now(), 1), (now(), 1)")
        with pytest.raises(Exception, match=r"duplicated|unique"):
            await build_index(store, "broken_idx", statement)
        is_valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'dlq_handler.broken_idx'::regclass"
        assert await connection.fetchval(is_valid) is False
        await connection.execute("DELETE FROM dlq_handler.change_count")
        await build_index(store, "broken_idx", statement)
        assert await connection.fetchval(is_valid) is True
        await build_index(store, "broken_idx", statement)


async def test_role_that_may_not_create_schemas_migrates_one_made_for_it(
    database: str, plain_role: str
) -> None:
    role = urlsplit(plain_role).username
    async with bare_connection(database) as connection:
        await connection.execute(f"CREATE SCHEMA dlq_handler AUTHORIZATION {role}")
    store = Database(plain_role)
    assert (await migrate.upgrade(store)).version == max(migrate.known_versions())
    await store.dispose()


async def test_role_that_may_create_nothing_is_content_with_current_tables(
    store: Database, database: str, plain_role: str
) -> None:
    role = urlsplit(plain_role).username
    async with bare_connection(database) as connection:
        await connection.execute(
            f"GRANT USAGE ON SCHEMA dlq_handler TO {role};"
            f"GRANT SELECT ON dlq_handler.alembic_version, dlq_handler.compatibility TO {role}"
        )
    humble = Database(plain_role)
    await migrate.upgrade(humble)
    await humble.dispose()
