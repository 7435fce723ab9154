"""The printed GRANTs are enough for the whole job, and for nothing more."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql
from dlq_handler.endings import outbox_sql
from dlq_handler.endings.outbox_sql import OutboxLease
from dlq_handler.errors import GrantsMissing
from dlq_handler.host import workers_sql
from dlq_handler.host.executions_sql import already_retried
from dlq_handler.host.grants_sql import missing_grants, read_database
from dlq_handler.host.reconcile_sql import count_leaked_slots
from dlq_handler.host.rights import host_grants, own_grants
from sandbox.attune.database import bare_connection
from sandbox.servers import PostgreSQL
from tests.support.host_tables import Host, commit_batch


@dataclass(frozen=True)
class Role:
    name: str
    store: Database
    admin_url: str

    async def run_as_admin(self, *statements: str) -> None:
        async with bare_connection(self.admin_url) as connection:
            for statement in statements:
                await connection.execute(statement)

    async def grants(self) -> list[str]:
        found = await read_database(self.store, self.name)
        return [*host_grants(self.name, found.rights), *own_grants(self.name, "dlq_handler")]


@pytest.fixture
async def role(postgres: PostgreSQL, database: str) -> AsyncIterator[Role]:
    """A role without any right yet."""
    name = f"sidecar_{uuid.uuid4().hex[:12]}"
    await postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'sidecar'")
    parts = urlsplit(database)
    url = urlunsplit(parts._replace(netloc=f"{name}:sidecar@{parts.netloc.rpartition('@')[2]}"))
    store = Database(url)
    yield Role(name, store, database)
    await store.dispose()
    async with bare_connection(database) as connection:
        await connection.execute(f"DROP OWNED BY {name} CASCADE")
    await postgres.execute(f"DROP ROLE {name}")


async def test_role_with_the_printed_grants_does_the_whole_job(role: Role, host: Host) -> None:
    await role.run_as_admin(*await role.grants())
    store = role.store
    await migrate.upgrade(store)
    assert await missing_grants(store) == []

    enforcement = await host.session.fetchval(
        "INSERT INTO enforcement (rule_ref, trigger_ref) VALUES ('a.b', 'c.d') RETURNING id"
    )
    execution_id = await host.add_execution(enforcement=enforcement)
    entries = await commit_batch(store, [await host.letter_for(execution_id)], holder="me")
    await outbox_sql.put_back(
        store, {entries[0].id: "refused"}, unroutable=[], possibly_published=[], max_backoff_seconds=0
    )
    entries = await outbox_sql.claim_due(
        store, OutboxLease(holder="me", seconds=60, taken_at=monotonic_seconds()), limit=1
    )
    await outbox_sql.mark_confirmed(store, [entry.id for entry in entries])
    assert not await already_retried(store, [execution_id])
    await workers_sql.worker_ids(store)
    await workers_sql.list_workers(store)
    await workers_sql.workers_with_dispatches(store)
    assert await records_sql.delete_resolved(store, older_than_seconds=0) == 1
    assert await outbox_sql.delete_confirmed(store, older_than_seconds=0) == 1
    assert (await host.execution(execution_id))["status"] == "failed"


async def test_printed_grants_suffice_when_another_role_migrated(
    role: Role, store: Database, host: Host
) -> None:
    await role.run_as_admin(*await role.grants())
    assert await missing_grants(role.store) == []
    execution_id = await host.add_execution()
    await commit_batch(role.store, [await host.letter_for(execution_id)])
    assert len(await host.letters()) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE execution SET worker = NULL",
        "UPDATE execution SET updated = now()",
        "DELETE FROM execution",
        "INSERT INTO execution (action_ref) VALUES ('a.b')",
        "UPDATE worker SET status = 'inactive'",
        "DELETE FROM execution_history",
        "UPDATE execution_history SET time = now()",
        "SELECT 1 FROM identity",
        "CREATE TABLE attune.ours (id int)",
    ],
)
async def test_role_with_the_printed_grants_can_do_nothing_else_to_the_host(
    role: Role, statement: str
) -> None:
    await role.run_as_admin(*await role.grants())
    with pytest.raises(GrantsMissing, match="dlq-handler grants"):
        async with role.store.transaction() as tx:
            await tx.run(statement)


@pytest.mark.parametrize(
    ("revoked", "named"),
    [
        ("UPDATE (result) ON attune.execution", "UPDATE (result) on attune.execution"),
        ("SELECT ON attune.execution", "SELECT on attune.execution"),
        ("SELECT ON attune.enforcement", "SELECT on attune.enforcement"),
        ("INSERT ON attune.audit_event", "INSERT on attune.audit_event"),
        (
            "USAGE ON SEQUENCE attune.audit_event_id_seq",
            "USAGE on sequence attune.audit_event_id_seq",
        ),
        ("INSERT ON dlq_handler.outbox", "INSERT on dlq_handler.outbox"),
        ("USAGE ON SEQUENCE dlq_handler.letter_id_seq", "USAGE on sequence dlq_handler.letter_id_seq"),
    ],
)
async def test_missing_grant_is_named_and_no_letter_is_recorded_over_it(
    role: Role, store: Database, host: Host, revoked: str, named: str
) -> None:
    await role.run_as_admin(*await role.grants(), f"REVOKE {revoked} FROM {role.name}")
    enforcement = await host.session.fetchval(
        "INSERT INTO enforcement (rule_ref, trigger_ref) VALUES ('a.b', 'c.d') RETURNING id"
    )
    execution_id = await host.add_execution(enforcement=enforcement)

    assert await missing_grants(role.store) == [named]
    with pytest.raises(GrantsMissing):
        await commit_batch(role.store, [await host.letter_for(execution_id)])

    assert await host.letters() == []
    assert (await host.execution(execution_id))["status"] == "scheduled"


async def test_all_missing_grants_of_a_role_are_reported_at_once(role: Role, store: Database) -> None:
    missing = await missing_grants(role.store)
    assert {"USAGE on schema attune", "USAGE on schema dlq_handler", "SELECT on attune.worker"} <= set(
        missing
    )


async def test_host_without_audit_needs_no_right_on_it(role: Role, store: Database, host: Host) -> None:
    await role.run_as_admin(*await role.grants())
    await host.session.execute("DROP TABLE audit_event, execution_admission_entry")
    assert await missing_grants(role.store) == []


async def test_slots_that_we_may_not_read_are_not_counted_as_none(role: Role) -> None:
    await role.run_as_admin(*await role.grants())
    assert await count_leaked_slots(role.store, held_seconds=600) == 0
    await role.run_as_admin(f"REVOKE SELECT ON attune.execution_admission_entry FROM {role.name}")
    assert await count_leaked_slots(role.store, held_seconds=600) is None


async def test_what_triggers_write_and_read_is_granted_too(role: Role, host: Host) -> None:
    """As a newer Attune has it: a trigger on the history marks the hour, by a function that it calls."""
    await host.session.execute(
        """
        CREATE SCHEMA audit;
        CREATE TABLE audit.trail (id bigserial, status text);
        CREATE TABLE summary_hour (id bigint GENERATED ALWAYS AS IDENTITY, bucket timestamptz);
        CREATE TABLE untouched (id bigserial);
        CREATE FUNCTION mark_hour() RETURNS void LANGUAGE plpgsql AS $$
        BEGIN
            IF NOT EXISTS (SELECT FROM summary_hour WHERE bucket = date_trunc('hour', now())) THEN
                INSERT INTO summary_hour (bucket) VALUES (date_trunc('hour', now()));
            END IF;
        END $$;
        CREATE FUNCTION note_history() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM mark_hour();
            INSERT INTO audit.trail (status) VALUES (NEW.new_values ->> 'status');
            RETURN NULL;
        END $$;
        CREATE FUNCTION at_delete() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO untouched DEFAULT VALUES; RETURN NULL; END $$;
        CREATE TRIGGER note AFTER INSERT ON execution_history FOR EACH ROW EXECUTE FUNCTION note_history();
        CREATE TRIGGER at_delete AFTER DELETE ON execution FOR EACH ROW EXECUTE FUNCTION at_delete();
        """
    )
    granted = await role.grants()
    await role.run_as_admin(*granted)
    await migrate.upgrade(role.store)
    assert await missing_grants(role.store) == []

    execution_id = await host.add_execution()
    await commit_batch(role.store, [await host.letter_for(execution_id)])

    assert (await host.execution(execution_id))["status"] == "failed"
    assert await host.session.fetchval("SELECT count(*) FROM audit.trail WHERE status = 'failed'") == 1
    assert not any("untouched" in one or "summary_hour_id_seq" in one for one in granted)
    await role.run_as_admin(f"REVOKE SELECT ON attune.summary_hour FROM {role.name}")
    assert await missing_grants(role.store) == ["SELECT on attune.summary_hour"]


async def test_a_trigger_with_rights_of_its_own_asks_for_none(role: Role, host: Host) -> None:
    await host.session.execute(
        """
        CREATE TABLE elsewhere (id bigserial);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
            $$ BEGIN INSERT INTO elsewhere DEFAULT VALUES; RETURN NULL; END $$;
        CREATE TRIGGER note AFTER UPDATE ON execution FOR EACH ROW EXECUTE FUNCTION note();
        """
    )
    assert not any("elsewhere" in one for one in await role.grants())


async def test_every_table_of_dlq_handler_is_checked(role: Role, store: Database, host: Host) -> None:
    await role.run_as_admin(
        *await role.grants(), f"REVOKE INSERT ON ALL TABLES IN SCHEMA dlq_handler FROM {role.name}"
    )
    rows = await host.session.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'dlq_handler'")
    tables = {row["tablename"] for row in rows} - {"alembic_version", "compatibility"}
    assert set(await missing_grants(role.store)) == {f"INSERT on dlq_handler.{table}" for table in tables}
