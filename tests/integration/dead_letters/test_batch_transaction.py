"""The statements of the batch transaction, on stock Attune's tables with their indexes and triggers."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.record import CHANGED, GUARD_MISSED, Entry, entries_of
from dlq_handler.errors import RowRefused
from dlq_handler.host import executions_sql, workers_sql
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.executions_sql import end_executions
from tests.support.builders import a_dead_letter
from tests.support.host_tables import Host, commit_batch, decided, endings_of

MICROSECOND = timedelta(microseconds=1)


def an_entry(key: str) -> Entry:
    return Entry(letter=a_dead_letter(key=key), outcome=Outcome.UNRELATED, explanation="because")


async def test_letter_of_the_current_attempt_fails_its_execution_and_is_recorded_and_announced(
    store: Database, host: Host
) -> None:
    execution_id = await host.add_execution()
    letter = await host.letter_for(execution_id)

    await commit_batch(store, [letter])

    row = await host.execution(execution_id)
    assert row["status"] == "failed"
    assert row["result"]["failed_by"] == "dlq_handler"
    assert row["updated"] > letter.attempt_updated_at
    [record] = await host.letters()
    assert (record["outcome"], record["execution_id"], record["replica"]) == ("failed", execution_id, "here")
    [completion] = await host.outbox()
    assert json.loads(completion["body"])["payload"]["execution_id"] == execution_id


async def test_host_triggers_write_history_and_audit_for_our_change(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()

    await commit_batch(store, [await host.letter_for(execution_id)])

    history = await host.session.fetchval(
        "SELECT new_values ->> 'status' FROM execution_history WHERE entity_id = $1 AND operation = 'UPDATE'",
        execution_id,
    )
    audit = await host.session.fetchval(
        "SELECT outcome::text FROM audit_event WHERE entity_id = $1 AND event_type = 'execution.failed'",
        execution_id,
    )
    assert (history, audit) == ("failed", "failure")


@pytest.mark.parametrize("offset", [MICROSECOND, -MICROSECOND])
async def test_change_is_refused_when_updated_differs_by_one_microsecond(
    store: Database, host: Host, offset: timedelta
) -> None:
    execution_id = await host.add_execution()
    letter = await host.letter_for(execution_id)

    async with store.transaction() as tx:
        view = await executions_sql.lock_executions(tx, [execution_id])
        [ruling] = decided([letter], view)
        assert ruling.change is not None
        as_read = replace(ruling.change.execution, updated=ruling.change.execution.updated + offset)
        changed = await end_executions(tx, [replace(ruling.change, execution=as_read)])

    assert changed == set()
    assert (await host.execution(execution_id))["status"] == "scheduled"


async def test_change_is_refused_when_the_status_differs(store: Database, host: Host) -> None:
    execution_id = await host.add_execution(status="completed")
    letter = await host.letter_for(execution_id)

    async with store.transaction() as tx:
        view = await executions_sql.lock_executions(tx, [execution_id])
        scheduled = replace(view.executions[execution_id], status=ExecutionStatus.SCHEDULED)
        [ruling] = decided([letter], replace(view, executions={execution_id: scheduled}))
        changed = await end_executions(tx, endings_of([ruling]))

    assert changed == set()
    assert (await host.execution(execution_id))["status"] == "completed"


async def test_missed_guard_is_recorded_as_update_failed_with_a_next_try(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()
    letters = [await host.letter_for(execution_id), await host.letter_for(execution_id, key="second")]

    async with store.transaction() as tx:
        view = await executions_sql.lock_executions(tx, [execution_id])
        entries = entries_of(decided(letters, view), ended=set(), now=view.now)
        await records_sql.record_letters(tx, entries, replica="here")

    records = await host.letters()
    assert [record["outcome"] for record in records] == ["update_failed", "update_failed"]
    assert {record["error"] for record in records} == {GUARD_MISSED}
    assert {record["explanation"] for record in records} == {CHANGED}
    assert {record["next_attempt_at"] for record in records} == {view.now + timedelta(minutes=1)}


async def test_row_that_is_locked_elsewhere_is_neither_waited_for_nor_unknown(
    store: Database, host: Host
) -> None:
    locked, free = await host.add_executions(2)
    missing = free + 1000

    async with host.holding(locked), store.transaction(lock_timeout_ms=1) as tx:
        view = await executions_sql.lock_executions(tx, [missing, free, locked])

    assert set(view.executions) == {free}
    assert view.locked_elsewhere == {locked}


async def test_status_that_this_version_does_not_know_spoils_only_its_own_row(
    store: Database, host: Host
) -> None:
    await host.session.execute("ALTER TYPE execution_status ADD VALUE 'paused'")
    odd, plain = await host.add_execution(status="paused"), await host.add_execution()

    async with store.transaction() as tx:
        view = await executions_sql.lock_executions(tx, [odd, plain])

    assert set(view.executions) == {plain}
    assert view.unfamiliar == {odd: "paused"}
    assert view.locked_elsewhere == frozenset()


async def test_workflow_tasks_are_marked_in_the_outbox(store: Database, host: Host) -> None:
    task = await host.add_execution(workflow_task={"task_name": "one"})
    # JSON null is what Attune writes; the others are what another host may write.
    plain = [
        await host.add_execution(),
        await host.add_execution(workflow_task=None),
        await host.add_execution(workflow_task=[]),
    ]

    async with store.transaction() as tx:
        for look in (executions_sql.lock_executions, executions_sql.read_executions):
            view = await look(tx, [task, *plain])
            assert {one for one, row in view.executions.items() if row.is_workflow_task} == {task}
            assert len(view.executions) == 4


async def test_heartbeat_age_is_by_the_database_clock_and_a_missing_row_is_missing(
    store: Database, host: Host
) -> None:
    old, never = (
        await host.add_worker(heartbeat_age_seconds=3600),
        await host.add_worker(heartbeat_age_seconds=None),
    )

    async with store.transaction() as tx:
        workers = await workers_sql.read_workers(tx, [old, never, never + 1000])

    assert set(workers) == {old, never}
    age = workers[old].heartbeat_age_seconds
    assert age is not None
    assert 3600 <= age < 3700
    assert workers[never].heartbeat_age_seconds is None


async def test_letter_that_is_on_record_is_known_and_its_repeat_counted(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()
    letter = await host.letter_for(execution_id)
    await commit_batch(store, [letter])

    async with store.transaction() as tx:
        known = await records_sql.count_repeats(tx, {letter.key: 2, "never seen": 1})

    assert known == {letter.key}
    [record] = await host.letters()
    assert record["repeats"] == 2
    assert record["repeated_at"] > record["received_at"]


async def test_of_two_letters_with_one_key_the_first_delivered_stays_on_record(
    store: Database, host: Host
) -> None:
    execution_id = await host.add_execution()
    letter = await host.letter_for(execution_id)

    await commit_batch(store, [letter, letter])
    await commit_batch(store, [letter])

    assert [record["outcome"] for record in await host.letters()] == ["failed"]


async def test_record_ids_follow_the_order_of_delivery(store: Database, host: Host) -> None:
    async with store.transaction() as tx:
        await records_sql.record_letters(tx, [an_entry("z"), an_entry("a"), an_entry("m")], replica="here")

    assert [record["key"] for record in await host.letters()] == ["z", "a", "m"]


async def test_the_same_letters_in_opposite_orders_never_deadlock(store: Database, host: Host) -> None:
    # Each row takes its time, so that the two statements are sure to meet half-way.
    await host.session.execute(
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$;"
        "CREATE TRIGGER dawdle BEFORE INSERT ON dlq_handler.letter FOR EACH ROW EXECUTE FUNCTION dawdle()"
    )
    keys = [f"{number:04}" for number in range(40)]

    async def record(order: list[str]) -> None:
        async with store.transaction(lock_timeout_ms=20_000) as tx:
            await records_sql.count_repeats(tx, dict.fromkeys(order, 1))
            await records_sql.record_letters(tx, [an_entry(key) for key in order], replica="here")

    async with asyncio.TaskGroup() as both:
        both.create_task(record(keys))
        both.create_task(record(keys[::-1]))

    assert len(await host.letters()) == len(keys)


async def test_the_same_executions_in_opposite_orders_never_deadlock_and_are_failed_once(
    store: Database, host: Host
) -> None:
    ids = await host.add_executions(200)
    letters = [await host.letter_for(execution_id) for execution_id in ids]

    async with asyncio.TaskGroup() as replicas:
        for order in (letters, letters[::-1], letters[100:] + letters[:100]):
            replicas.create_task(commit_batch(store, order))
    # What a replica found locked it held over; now it is free.
    await commit_batch(store, letters)

    statuses = await host.session.fetch("SELECT DISTINCT status::text AS status FROM execution")
    assert [row["status"] for row in statuses] == ["failed"]
    assert {record["outcome"] for record in await host.letters()} == {"failed"}
    assert len(await host.outbox()) == len(ids)


async def test_trigger_that_cannot_notify_rejects_the_row_and_leaves_nothing_behind(
    store: Database, host: Host
) -> None:
    execution_id = await host.add_execution()
    # Past 8000 bytes the host's NOTIFY fails, and with it every change of the status.
    await host.session.execute(
        "UPDATE execution SET workflow_task = jsonb_build_object('name', repeat('x', 9000)) WHERE id = $1",
        execution_id,
    )

    with pytest.raises(RowRefused) as refused:
        await commit_batch(store, [await host.letter_for(execution_id)])

    assert refused.value.sqlstate == "22023"
    assert await host.letters() == []
    assert (await host.execution(execution_id))["status"] == "scheduled"


async def test_nul_and_lone_surrogates_reach_neither_text_nor_jsonb(store: Database, host: Host) -> None:
    execution_id = await host.add_execution()
    nasty = "a\x00b\ud800c"
    letter = await host.letter_for(
        execution_id, action_ref=nasty, routing_key=nasty, body=nasty.encode("utf-8", "surrogatepass")
    )

    async with store.transaction() as tx:
        view = await executions_sql.lock_executions(tx, [execution_id])
        [ruling] = decided([letter], view)
        assert ruling.change is not None
        ended = replace(ruling.change, result={nasty: [nasty, {"deep": nasty}]})
        assert await end_executions(tx, [ended]) == {execution_id}
        entry = Entry(letter=letter, outcome=Outcome.FAILED, explanation=nasty, error=nasty)
        await records_sql.record_letters(tx, [entry], replica="here")

    visible = "a\\u0000b\\ud800c"
    assert (await host.execution(execution_id))["result"] == {visible: [visible, {"deep": visible}]}
    [record] = await host.letters()
    assert (record["action_ref"], record["explanation"], record["error"]) == (visible, visible, visible)
    assert record["body"] == letter.body
