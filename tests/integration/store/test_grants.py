"""The printed GRANTs are enough for the whole job, and for nothing more."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest

from dlq_handler.domain.worker import Worker
from dlq_handler.errors import GrantsMissing
from dlq_handler.sandbox.attune.database import bare_connection
from dlq_handler.sandbox.servers import PostgreSQL
from dlq_handler.store import letters, migrate, outbox, workers
from dlq_handler.store.engine import Database
from dlq_handler.store.grants import grant_statements, missing_grants
from dlq_handler.store.reconcile import count_leaked_slots
from dlq_handler.store.workflow_tasks import already_retried
from tests.integration.store.host import Host, commit_batch


@dataclass(frozen=True)
class Role:
    name: str
    store: Database
    admin_url: str

    async def run_as_admin(self, *statements: str) -> None:
        async with bare_connection(self.admin_url) as connection:
            for statement in statements:
                await connection.execute(statement)

    @property
    def grants(self) -> list[str]:
        return grant_statements(self.name, host_schema="attune", own_schema="dlq_handler")


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
    await role.run_as_admin(*role.grants)
    store = role.store
    await migrate.upgrade(store)
    assert await missing_grants(store) == []

    enforcement = await host.session.fetchval(
        "INSERT INTO enforcement (rule_ref, trigger_ref) VALUES ('a.b', 'c.d') RETURNING id"
    )
    execution_id = await host.add_execution(enforcement=enforcement)
    entries = await commit_batch(store, [await host.letter_for(execution_id)], holder="me")
    await outbox.put_back(store, {entries[0].id: "refused"}, maybe_sent=[], max_backoff_seconds=0)
    entries = await outbox.claim_due(store, holder="me", limit=1, lease_seconds=60)
    await outbox.mark_confirmed(store, [entry.id for entry in entries])
    assert not await already_retried(store, [execution_id])
    await workers.worker_ids(store)
    await workers.list_workers(store)
    await workers.workers_with_dispatches(store)
    assert await letters.sweep_resolved(store, older_than_seconds=0) == 1
    assert await outbox.sweep_confirmed(store, older_than_seconds=0) == 1
    assert (await host.execution(execution_id))["status"] == "failed"


async def test_printed_grants_suffice_when_somebody_else_migrated(
    role: Role, store: Database, host: Host
) -> None:
    await role.run_as_admin(*role.grants)
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
    await role.run_as_admin(*role.grants)
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
            "USAGE ON SEQUENCE attune.execution_history_id_seq",
            "USAGE on sequence attune.execution_history_id_seq",
        ),
        ("INSERT ON dlq_handler.outbox", "INSERT on dlq_handler.outbox"),
        ("USAGE ON SEQUENCE dlq_handler.letter_id_seq", "USAGE on sequence dlq_handler.letter_id_seq"),
    ],
)
async def test_missing_grant_is_named_and_no_letter_is_recorded_over_it(
    role: Role, store: Database, host: Host, revoked: str, named: str
) -> None:
    await role.run_as_admin(*role.grants, f"REVOKE {revoked} FROM {role.name}")
    enforcement = await host.session.fetchval(
        "INSERT INTO enforcement (rule_ref, trigger_ref) VALUES ('a.b', 'c.d') RETURNING id"
    )
    execution_id = await host.add_execution(enforcement=enforcement)

    assert await missing_grants(role.store) == [named]
    with pytest.raises(GrantsMissing):
        await commit_batch(role.store, [await host.letter_for(execution_id)])

    assert await host.letters() == []
    assert (await host.execution(execution_id))["status"] == "scheduled"


async def test_role_without_any_grant_is_told_everything_at_once(role: Role, store: Database) -> None:
    missing = await missing_grants(role.store)
    assert {"USAGE on schema attune", "USAGE on schema dlq_handler", "SELECT on attune.worker"} <= set(
        missing
    )


async def test_tables_that_are_not_there_yet_are_named(role: Role) -> None:
    await role.run_as_admin(*role.grants)
    assert "SELECT on dlq_handler.letter (there is no such table)" in await missing_grants(role.store)


async def test_host_without_audit_needs_no_right_on_it(role: Role, store: Database, host: Host) -> None:
    await role.run_as_admin(*role.grants)
    await host.session.execute("DROP TABLE audit_event, execution_admission_entry")
    assert await missing_grants(role.store) == []


async def test_a_worker_may_be_marked_only_with_the_grants_for_it(role: Role, host: Host) -> None:
    await role.run_as_admin(*role.grants)
    await migrate.upgrade(role.store)
    worker = Worker(id=await host.add_worker(), heartbeat_age_seconds=0, last_heartbeat=None)
    assert not any('UPDATE ("status") ON "attune"."worker"' in grant for grant in role.grants)
    assert set(await missing_grants(role.store, marks_workers=True)) == {
        "UPDATE (status) on attune.worker",
        "INSERT on attune.worker_history",
        "USAGE on sequence attune.worker_history_id_seq",
    }
    with pytest.raises(GrantsMissing):
        async with role.store.transaction() as tx:
            await workers.mark_inactive(tx, worker)

    await role.run_as_admin(
        *grant_statements(role.name, host_schema="attune", own_schema="dlq_handler", marks_workers=True)
    )

    assert await missing_grants(role.store, marks_workers=True) == []
    [seen] = await workers.read_fleet(role.store)
    async with role.store.transaction() as tx:
        assert await workers.mark_inactive(tx, seen)
    assert await host.session.fetchval("SELECT status::text FROM worker") == "inactive"


async def test_slots_that_we_may_not_read_are_not_counted_as_none(role: Role) -> None:
    await role.run_as_admin(*role.grants)
    assert await count_leaked_slots(role.store, held_seconds=600) == 0
    await role.run_as_admin(f"REVOKE SELECT ON attune.execution_admission_entry FROM {role.name}")
    assert await count_leaked_slots(role.store, held_seconds=600) is None
