"""In shadow mode a letter is decided as always and put on record, and that is all that is written."""

import uuid
from urllib.parse import urlsplit, urlunsplit

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql, reprocess_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.options import SHADOW_KEY_PREFIX
from dlq_handler.endings.writers import ShadowWriter
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.history.retention import RetentionRunner
from dlq_handler.rooms import RETENTION_STEPS
from sandbox.servers import PostgreSQL
from tests.support.builders import a_dead_letter
from tests.support.deciding import a_reprocessor, letter_ender
from tests.support.fail_safe import a_brake, a_gate
from tests.support.host_tables import Host


async def a_copy(host: Host, execution_id: int) -> DeadLetter:
    return await host.letter_for(execution_id, key=f"{SHADOW_KEY_PREFIX}letter-{execution_id}")


async def test_decision_is_on_record_and_nothing_else_is_written(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()
    before = await host.execution(execution_id)
    copy = await a_copy(host, execution_id)
    # With a limit of one, so that the brake would have something to say to a second ending.
    decide = letter_ender(store, brake=a_brake(store, limit=1), is_shadow=True)
    await decide.check()
    committed = await decide.commit([copy, await a_copy(host, await host.add_execution())])
    assert (committed.ended, committed.postponed) == (2, frozenset())
    assert await host.execution(execution_id) == before
    for table in ("outbox", "change_count"):
        assert await host.session.fetch(f"SELECT * FROM dlq_handler.{table}") == []
    record, _ = await host.letters()
    assert (record["outcome"], record["is_shadow"]) == ("failed", True)
    shown = await records_sql.show(store, record["id"])
    assert shown is not None
    assert shown.is_shadow


async def test_letter_itself_is_decided_later_as_if_no_copy_had_been(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()
    await letter_ender(store, is_shadow=True).commit([await a_copy(host, execution_id)])
    await letter_ender(store).commit([await host.letter_for(execution_id)])
    assert (await host.execution(execution_id))["status"] == "failed"
    assert [(row["outcome"], row["is_shadow"]) for row in await host.letters()] == [
        ("failed", True),
        ("failed", False),
    ]


async def test_copy_that_comes_again_is_known(store: Database, host: Host) -> None:
    copy = await a_copy(host, await host.add_execution())
    for _ in range(2):
        await letter_ender(store, is_shadow=True).commit([copy])
    assert [row["repeats"] for row in await host.letters()] == [1]


async def test_shadow_mode_blocks_no_session_and_is_blocked_by_none(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()
    copy = await a_copy(host, execution_id)
    async with host.holding(execution_id):
        committed = await letter_ender(store, is_shadow=True).commit([copy])
    assert not committed.postponed
    async with store.transaction() as tx:
        await ShadowWriter(a_gate(store)).executions(tx, [execution_id])
        await host.session.execute("UPDATE execution SET config = '{}' WHERE id = $1", execution_id)


async def test_shadow_record_is_never_decided_again(store: Database, host: Host) -> None:
    """Reprocessed it would fail an execution in earnest."""
    execution_id = await host.add_execution()
    gone = a_dead_letter(key="shadow:k", execution_id=execution_id + 1000)
    await letter_ender(store, is_shadow=True).commit([gone])
    await host.session.execute(
        "UPDATE dlq_handler.letter SET next_attempt_at = now(), execution_id = $1", execution_id
    )
    [record] = await host.letters()
    assert record["outcome"] == "unknown_execution"
    assert await reprocess_sql.reprocessable(store, [Outcome.UNKNOWN_EXECUTION]) == []
    assert await reprocess_sql.due_for_reprocess(store) == []
    reprocessor = a_reprocessor(store)
    assert await reprocessor.reprocess(record["id"]) is None
    assert (await host.execution(execution_id))["status"] == "scheduled"


async def test_shadow_records_are_deleted_like_others(store: Database, host: Host) -> None:
    await letter_ender(store, is_shadow=True).commit(
        [
            await a_copy(host, await host.add_execution()),
            a_dead_letter(key="shadow:?", parse_error="unreadable"),
        ]
    )
    await host.session.execute(
        "UPDATE dlq_handler.letter SET received_at = now() - interval '1 day', decided_at = now() - interval '1 day'"
    )
    policy = RetentionPolicy(resolved_seconds=3600, unresolved_seconds=7200, interval_seconds=300)
    await RetentionRunner(store, policy, RETENTION_STEPS).tick()
    assert await host.letters() == []


async def test_role_that_may_only_read_executions_suffices(
    store: Database, host: Host, database: str, postgres: PostgreSQL
) -> None:
    role = f"shadow_{uuid.uuid4().hex[:12]}"
    await postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'shadow'")
    parts = urlsplit(database)
    url = urlunsplit(parts._replace(netloc=f"{role}:shadow@{parts.netloc.rpartition('@')[2]}"))
    for right in (
        "USAGE ON SCHEMA attune, dlq_handler",
        "SELECT ON attune.execution, attune.worker",
        "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dlq_handler",
        "USAGE ON ALL SEQUENCES IN SCHEMA dlq_handler",
    ):
        await host.session.execute(f"GRANT {right} TO {role}")
    reader = Database(url)
    try:
        decide = letter_ender(reader, is_shadow=True)
        await decide.check()
        await decide.commit([await a_copy(host, await host.add_execution())])
        assert [row["outcome"] for row in await host.letters()] == ["failed"]
    finally:
        await reader.dispose()
        await host.session.execute(f"DROP OWNED BY {role} CASCADE")
        await postgres.execute(f"DROP ROLE {role}")
