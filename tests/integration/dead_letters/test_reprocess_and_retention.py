"""Kept letters are reprocessed by the same rules, and records go when their time is over, not before."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import CursorResult
from structlog.testing import capture_logs

from dlq_handler.database import expiry_sql, migrate
from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters import decide, records_sql, reprocess_sql
from dlq_handler.dead_letters.decide import decide_dead_letter
from dlq_handler.dead_letters.decision import Decision, Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.errors import RowRefused, Unavailable
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.history.retention import RetentionRunner
from dlq_handler.rooms import RETENTION_STEPS
from sandbox.servers.ports import free_port
from tests.integration.timeouts.test_stale import nodes
from tests.support.builders import a_dead_letter
from tests.support.deciding import a_reprocessor

DAY = 86_400.0


class Fixture:
    def __init__(self, store: Database, unavailable_after_seconds: float = 90) -> None:
        self.store = store
        self.reprocessor = a_reprocessor(store, unavailable_after_seconds=unavailable_after_seconds)
        self.retention = RetentionRunner(
            store,
            RetentionPolicy(resolved_seconds=DAY, unresolved_seconds=30 * DAY, interval_seconds=300),
            RETENTION_STEPS,
        )

    async def sql(self, statement: str, **parameters: Any) -> list[Any]:
        async with self.store.transaction() as tx:
            result = await tx.run(statement, **parameters)
            return list(result.all()) if result.returns_rows else []

    async def keep(
        self, key: str, outcome: Outcome, *, age_days: float = 0, decided_days: float | None = None
    ) -> int:
        async with self.store.transaction() as tx:
            entry = Entry(letter=a_dead_letter(key=key), outcome=outcome, explanation="test")
            await records_sql.record_letters(tx, [entry], replica="test")
        [row] = await self.sql(
            "UPDATE own.letter SET received_at = now() - make_interval(secs => :age),"
            " decided_at = now() - make_interval(secs => :decided) WHERE key = :key RETURNING id",
            key=key,
            age=age_days * DAY,
            decided=(age_days if decided_days is None else decided_days) * DAY,
        )
        return int(row.id)

    async def outcomes(self) -> dict[str, str]:
        return {row.key: row.outcome for row in await self.sql("SELECT key, outcome FROM own.letter")}


@pytest.fixture
async def it(database: str) -> AsyncIterator[Fixture]:
    store = Database(database)
    await migrate.upgrade(store)
    yield Fixture(store)
    await store.dispose()


async def _a_running_execution_of_a_dead_worker(it: Fixture) -> None:
    await it.sql(
        "INSERT INTO worker (id, name, worker_type, worker_role, last_heartbeat)"
        " VALUES (7, 'dead', 'local', 'action', now() - interval '1 hour')"
    )
    await it.sql(
        "INSERT INTO execution (id, action_ref, status, worker) VALUES (1, 'core.echo', 'running', 7)"
    )


async def test_link_too_young_to_know_puts_a_letter_off_instead_of_resolving_it(it: Fixture) -> None:
    """As from the command line, whose link is always young: `left_to_monitor` would be for good."""
    await _a_running_execution_of_a_dead_worker(it)
    record = await it.keep("k", Outcome.UNKNOWN_EXECUTION)
    reprocessed = await it.reprocessor.reprocess(record)
    assert reprocessed
    assert reprocessed.outcome is Outcome.UNKNOWN_EXECUTION
    assert "too young" in reprocessed.explanation
    assert [one.record_id for one in await reprocess_sql.due_for_reprocess(it.store)] == [record], (
        "a sidecar that has watched longer takes it up"
    )


async def test_link_old_enough_fails_the_execution_of_the_dead_worker(it: Fixture) -> None:
    await _a_running_execution_of_a_dead_worker(it)
    record = await it.keep("k", Outcome.UNKNOWN_EXECUTION)
    reprocessed = await Fixture(it.store, unavailable_after_seconds=0.000_001).reprocessor.reprocess(record)
    assert reprocessed
    assert (reprocessed.before, reprocessed.outcome) == (Outcome.UNKNOWN_EXECUTION, Outcome.FAILED)
    [row] = await it.sql("SELECT CAST(status AS text) AS status FROM execution")
    assert row.status == "failed"


async def test_deleted_or_resolved_record_is_skipped(it: Fixture) -> None:
    settled = await it.keep("k", Outcome.FAILED)
    assert await it.reprocessor.reprocess(settled) is None
    assert await it.reprocessor.reprocess(10**9) is None


async def test_records_are_deleted_when_their_time_is_over(it: Fixture) -> None:
    await it.keep("resolved, old", Outcome.FAILED, age_days=1.1)
    await it.keep("resolved, young", Outcome.FAILED, age_days=0.9)
    await it.keep("kept for days, resolved just now", Outcome.FAILED, age_days=5, decided_days=0)
    await it.keep("unresolved, old", Outcome.UNREADABLE, age_days=31)
    await it.keep("unresolved, young", Outcome.UNREADABLE, age_days=29)
    await it.keep("unresolved, reprocessed lately", Outcome.UPDATE_FAILED, age_days=31, decided_days=0)
    await it.retention.tick()
    assert set(await it.outcomes()) == {
        "resolved, young",
        "kept for days, resolved just now",
        "unresolved, young",
    }


async def test_decisions_of_the_monitor_are_deleted_too(it: Fixture) -> None:
    await it.sql(
        "INSERT INTO own.stale_decision (execution_id, attempt_updated_at, original_status, outcome, explanation,"
        " evidence, decided_at, replica) SELECT n, now(), 'running', 'abandoned', '', '{}',"
        " now() - n * interval '1 day', ''"
        " FROM generate_series(0, 2) AS n"
    )
    await it.retention.tick()
    assert [row.execution_id for row in await it.sql("SELECT execution_id FROM own.stale_decision")] == [0]


async def test_decisions_made_again_hide_no_old_one(it: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision made again keeps its id and has a new time: ids are not in the order of time."""
    monkeypatch.setattr(expiry_sql, "BATCH_SIZE", 2)
    await it.sql(
        "INSERT INTO own.stale_decision (execution_id, attempt_updated_at, original_status, outcome, explanation,"
        " evidence, decided_at, replica) SELECT n, now(), 'running', 'abandoned', '', '{}',"
        " now() - n / 10 * interval '2 days', ''"
        " FROM generate_series(1, 12) AS n ORDER BY n"
    )
    await it.retention.tick()
    assert await count_of(it, "stale_decision") == 9


async def test_history_has_its_own_days_and_the_audit_those_of_unresolved_letters(it: Fixture) -> None:
    await it.sql(
        "INSERT INTO own.letter_minute SELECT now() - n * interval '1 day', 'g', 1, 1, now() FROM unnest("
        "ARRAY[6, 8]) AS n"
    )
    await it.sql(
        "INSERT INTO own.observed_minute SELECT 'letters', now() - n * interval '1 day' FROM unnest(ARRAY[6, 8]) AS n"
    )
    for table in ("history_event", "diagnosis_change", "operation"):
        values = {
            "history_event": "(at, topic, kind, replica) SELECT {at}, 'replica', 'replica.started', 'one'",
            "diagnosis_change": "(at, diagnoses) SELECT {at}, '{{}}'",
            "operation": "(at, username, client, action, result, letter_ids)"
            " SELECT {at}, 'me', 'cli', 'brake.release', 'done', '{{}}'",
        }[table].format(at="now() - n * interval '1 day'")
        await it.sql(f"INSERT INTO own.{table} {values} FROM unnest(ARRAY[32, 8, 6]) AS n")
    await it.retention.tick()
    left = {
        table: (await it.sql(f"SELECT count(*) AS rows FROM own.{table}"))[0].rows
        for table in ("letter_minute", "observed_minute", "history_event", "diagnosis_change", "operation")
    }
    assert left == {
        "letter_minute": 1,
        "observed_minute": 1,
        "history_event": 1,
        "diagnosis_change": 1,
        "operation": 2,
    }


async def letters_of_age(it: Fixture, count: int, *, age: str, outcome: Outcome) -> None:
    await it.sql(
        "INSERT INTO own.letter (key, reason, exchange, routing_key, body, body_size, outcome, explanation,"
        " received_at, decided_at, replica) SELECT gen_random_uuid(), 'expired', '', '', repeat('x',"
        " 500)::bytea, 500, :outcome,"
        " '', at, at, '' FROM generate_series(1, CAST(:count AS int)),"
        " (SELECT now() - CAST(CAST(:age AS text) AS interval) AS at) AS received",
        count=count,
        age=age,
        outcome=outcome.value,
    )


async def old_letters(it: Fixture, count: int) -> None:
    await letters_of_age(it, count, age="2 days", outcome=Outcome.FAILED)
    await it.sql("ANALYZE own.letter")


async def old_notices(it: Fixture, count: int) -> None:
    await it.sql(
        "INSERT INTO own.outbox (message_id, correlation_id, execution_id, is_workflow_task, exchange, routing_key,"
        " body, created_at, next_attempt_at, confirmed_at) SELECT gen_random_uuid(), gen_random_uuid(), n,"
        " false, '', '', '', at, at, at FROM generate_series(1, CAST(:count AS int)) AS n,"
        " (SELECT now() - interval '2 days' AS at)"
        " AS old",
        count=count,
    )


async def count_of(it: Fixture, table: str) -> int:
    [row] = await it.sql(f"SELECT count(*) AS records FROM own.{table}")
    return int(row.records)


async def test_a_stop_is_obeyed_after_the_batch_in_hand(it: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    await old_letters(it, 50)
    await old_notices(it, 50)
    stop = asyncio.Event()

    run = Transaction.run

    async def run_and_stop(tx: Transaction, sql: str, **parameters: object) -> CursorResult[Any]:
        result = await run(tx, sql, **parameters)
        if "DELETE FROM own.letter " in sql:
            stop.set()
        return result

    monkeypatch.setattr(Transaction, "run", run_and_stop)
    monkeypatch.setattr(expiry_sql, "BATCH_SIZE", 10)
    async with asyncio.timeout(30):
        await it.retention.run(stop)
    assert (await count_of(it, "letter"), await count_of(it, "outbox")) == (40, 50)


async def test_a_table_that_cannot_be_cleaned_keeps_no_other_from_it(it: Fixture) -> None:
    await old_letters(it, 3)
    await old_notices(it, 3)
    await it.sql(
        "CREATE FUNCTION own.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'not this one'; END $$"
    )
    await it.sql(
        "CREATE TRIGGER refuse BEFORE DELETE ON own.letter FOR EACH ROW EXECUTE FUNCTION own.refuse()"
    )
    with pytest.raises(RowRefused, match="not this one"):
        await it.retention.tick()
    assert (await count_of(it, "letter"), await count_of(it, "outbox")) == (3, 0)


async def test_a_database_that_is_away_is_asked_once() -> None:
    away = Database(f"postgresql://user@127.0.0.1:{free_port()}/nothing")
    policy = RetentionPolicy(resolved_seconds=DAY, unresolved_seconds=30 * DAY, interval_seconds=300)
    with capture_logs() as logged, pytest.raises(Unavailable):
        await RetentionRunner(away, policy, RETENTION_STEPS).tick()
    assert logged == []


async def test_a_later_batch_reads_no_more_than_the_first(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What earlier batches deleted is still in the table, and nothing has vacuumed it yet."""
    await it.sql("ALTER TABLE own.letter SET (autovacuum_enabled = off)")
    await old_letters(it, 3000)
    monkeypatch.setattr(expiry_sql, "BATCH_SIZE", 100)
    plain, blocks = Transaction.run, list[int]()

    async def run(tx: Transaction, sql: str, **parameters: object) -> CursorResult[Any]:
        if "DELETE FROM own.letter" in sql:
            async with tx.connection.begin_nested() as attempt:
                [plan] = (
                    await plain(tx, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", **parameters)
                ).all()
                logged = plan[0] if isinstance(plan[0], list) else json.loads(plan[0])
                [search] = [node for node in nodes(logged[0]["Plan"]) if node["Node Type"] == "LockRows"]
                blocks.append(search["Shared Hit Blocks"] + search["Shared Read Blocks"])
                await attempt.rollback()
        return await plain(tx, sql, **parameters)

    monkeypatch.setattr(Transaction, "run", run)
    assert await records_sql.delete_resolved(it.store, older_than_seconds=DAY) == 3000
    assert len(blocks) >= 30
    assert max(blocks[1:30]) <= 2 * blocks[0], blocks


async def test_no_statement_reads_more_than_a_batch_of_records_that_stay(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unresolved records are kept longer, so records that stay are both before and after those to delete."""
    await letters_of_age(it, 1000, age="2 days", outcome=Outcome.UNREADABLE)
    await letters_of_age(it, 30, age="2 days", outcome=Outcome.FAILED)
    await letters_of_age(it, 1000, age="0 days", outcome=Outcome.FAILED)
    await it.sql("ANALYZE own.letter")
    monkeypatch.setattr(expiry_sql, "BATCH_SIZE", 10)
    plain, read = Transaction.run, list[int]()

    async def run(tx: Transaction, sql: str, **parameters: object) -> CursorResult[Any]:
        if "FROM own.letter" in sql:
            async with tx.connection.begin_nested() as attempt:
                [plan] = (await plain(tx, f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", **parameters)).all()
                answer = plan[0] if isinstance(plan[0], list) else json.loads(plan[0])
                read.append(sum(map(records_read, nodes(answer[0]["Plan"]))))
                await attempt.rollback()
        return await plain(tx, sql, **parameters)

    monkeypatch.setattr(Transaction, "run", run)
    assert await records_sql.delete_resolved(it.store, older_than_seconds=DAY) == 30
    assert await records_sql.delete_unresolved(it.store, older_than_seconds=30 * DAY) == 0
    # The statement that deletes reads each record twice: to lock it, and to delete it.
    assert max(read) <= 2 * 10, read
    assert await count_of(it, "letter") == 2000


def records_read(node: dict[str, Any]) -> int:
    if node.get("Relation Name") != "letter" or "Scan" not in node["Node Type"]:
        return 0
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


async def test_a_record_that_cannot_be_decided_keeps_no_other_from_it(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide_or_fail(letter: DeadLetter, *rest: Any) -> Decision:
        if letter.key == "odd":
            raise TypeError("quotes what a sender wrote")
        return decide_dead_letter(letter, *rest)

    monkeypatch.setattr(decide, "decide_dead_letter", decide_or_fail)
    await it.keep("odd", Outcome.UPDATE_FAILED)
    await it.keep("sound", Outcome.UPDATE_FAILED)
    # The odd one is due first.
    await it.sql("UPDATE own.letter SET next_attempt_at = now() + make_interval(secs => id - 100)")

    await it.reprocessor.tick()

    assert await it.outcomes() == {"odd": "update_failed", "sound": "unknown_execution"}
    [odd] = await it.sql(
        "SELECT error, next_attempt_at > now() AS is_later FROM own.letter WHERE key = 'odd'"
    )
    assert (odd.error, odd.is_later) == ("cannot be processed: TypeError", True)
