"""The outbox: who may publish what, and when."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Row

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import expiry_sql
from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings import outbox_sql
from dlq_handler.endings.outbox_sql import OutboxEntry, OutboxLease, OutboxProblem
from dlq_handler.host.executions_sql import already_retried
from dlq_handler.host.messages import ExecutionMessage
from tests.integration.timeouts.test_stale import nodes
from tests.support.host_tables import Host, commit_batch


def a_completion_event(execution_id: int, *, message_id: UUID | None = None) -> ExecutionMessage:
    return ExecutionMessage(
        message_id=str(message_id or uuid4()),
        correlation_id=str(uuid4()),
        exchange="x",
        routing_key="k",
        execution_id=execution_id,
        is_workflow_task=False,
        body=b"{}",
    )


def a_lease(holder: str) -> OutboxLease:
    return OutboxLease(holder=holder, seconds=60, taken_at=monotonic_seconds())


async def add(
    store: Database, *completions: ExecutionMessage, holder: str | None = None
) -> list[OutboxEntry]:
    async with store.transaction() as tx:
        return await outbox_sql.add_to_outbox(tx, completions, lease=a_lease(holder) if holder else None)


async def claim(store: Database, *, holder: str = "me", limit: int = 100) -> list[OutboxEntry]:
    return await outbox_sql.claim_due(store, a_lease(holder), limit=limit)


def executions(entries: Sequence[OutboxEntry]) -> list[int]:
    return [entry.message.execution_id for entry in entries]


async def put_back(
    store: Database,
    errors: Mapping[int, str],
    *,
    unroutable: Collection[int] = (),
    possibly_published: Collection[int] = (),
    most: float = 60,
) -> None:
    await outbox_sql.put_back(
        store,
        errors,
        unroutable=unroutable,
        possibly_published=possibly_published,
        max_backoff_seconds=most,
    )


async def end_leases(host: Host) -> None:
    await host.session.execute("UPDATE dlq_handler.outbox SET lease_until = now() - interval '1 second'")


async def test_fresh_completion_event_is_leased_to_its_writer_only(store: Database) -> None:
    completion = a_completion_event(1)

    [entry] = await add(store, completion, holder="me")

    assert entry.message == completion
    assert await claim(store, holder="another") == []


async def test_completion_event_without_a_holder_is_claimed_by_the_next_scan(store: Database) -> None:
    assert await add(store, a_completion_event(1), a_completion_event(2)) == []
    assert executions(await claim(store)) == [1, 2]
    assert await claim(store, holder="another") == []


async def test_completion_event_with_a_known_id_is_not_written_again(store: Database, host: Host) -> None:
    message_id = uuid4()
    await add(store, a_completion_event(1, message_id=message_id), holder="me")

    assert await add(store, a_completion_event(1, message_id=message_id), holder="me") == []
    assert len(await host.outbox()) == 1


async def test_later_completion_event_of_an_execution_waits_for_the_earlier_one(store: Database) -> None:
    [first] = await add(store, a_completion_event(1), holder="me")

    assert await add(store, a_completion_event(1), holder="me") == []
    assert await claim(store) == []

    await outbox_sql.mark_confirmed(store, [first.id])
    [second] = await claim(store)
    assert second.id > first.id


async def test_returned_completion_event_delays_only_later_ones_of_its_execution(
    store: Database,
) -> None:
    [first] = await add(store, a_completion_event(1), holder="me")
    await add(store, a_completion_event(1), a_completion_event(2))
    await put_back(store, {first.id: "NO_ROUTE"}, unroutable=[first.id])

    assert executions(await claim(store)) == [2]


async def test_entry_of_a_holder_that_died_is_adopted_when_its_lease_ends(
    store: Database, host: Host
) -> None:
    [left_behind] = await add(store, a_completion_event(1), holder="dead")
    await end_leases(host)

    [adopted] = await claim(store)

    assert (adopted.id, adopted.possibly_published) == (left_behind.id, True)
    assert await claim(store, holder="another") == []


async def test_only_a_completion_event_without_an_answer_may_have_been_sent(
    store: Database, host: Host
) -> None:
    entries = await add(store, a_completion_event(1), a_completion_event(2), holder="me")
    refused, unanswered = (entry.id for entry in entries)
    await put_back(
        store, {refused: "refused", unanswered: "no answer"}, possibly_published=[unanswered], most=0
    )
    await host.session.execute("UPDATE dlq_handler.outbox SET next_attempt_at = now()")

    assert {entry.id: entry.possibly_published for entry in await claim(store)} == {
        refused: False,
        unanswered: True,
    }


async def test_confirmed_entry_is_never_claimed_again(store: Database, host: Host) -> None:
    [entry] = await add(store, a_completion_event(1), holder="me")
    await end_leases(host)
    await outbox_sql.mark_confirmed(store, [entry.id])

    assert await claim(store) == []
    assert await outbox_sql.pending(store) == outbox_sql.Pending(
        count=0, oldest_age_seconds=0.0, unroutable=0
    )


async def test_mark_returns_the_duration_of_each_and_keeps_the_first_moment(
    store: Database, host: Host
) -> None:
    first, second = await add(store, a_completion_event(1), a_completion_event(2), holder="me")
    await host.session.execute(
        "UPDATE dlq_handler.outbox SET created_at = now() - interval '48 s', confirmed_at = now() WHERE id = $1",
        first.id,
    )
    [long, short] = sorted(await outbox_sql.mark_confirmed(store, [first.id, second.id]), reverse=True)
    assert (long, short < long) == (48.0, True)
    assert await outbox_sql.mark_confirmed(store, []) == []


async def test_refused_entry_waits_twice_as_long_each_time_up_to_a_limit(store: Database, host: Host) -> None:
    await add(store, a_completion_event(1))
    waits = []
    for _ in range(4):
        await host.session.execute("UPDATE dlq_handler.outbox SET next_attempt_at = now()")
        [entry] = await claim(store)
        await put_back(store, {entry.id: "no\x00 route"}, most=3)
        waits.append(
            await host.session.fetchval(
                "SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::float FROM dlq_handler.outbox"
            )
        )
        assert await claim(store) == []

    assert [round(wait + 0.45) for wait in waits] == [1, 2, 3, 3]
    [row] = await host.outbox()
    assert row["last_error"] == "no\\u0000 route"


async def test_released_entries_are_free_at_once_and_others_stay_held(store: Database) -> None:
    await add(store, a_completion_event(1), holder="me")
    await add(store, a_completion_event(2), holder="another")

    await outbox_sql.release(store, holder="me")

    assert executions(await claim(store, holder="third")) == [1]


async def test_claim_takes_the_oldest_and_no_more_than_asked(store: Database) -> None:
    await add(store, *(a_completion_event(number) for number in range(1, 6)))
    assert executions(await claim(store, limit=2)) == [1, 2]
    assert executions(await claim(store, limit=2)) == [3, 4]


async def test_pending_has_count_and_age(store: Database, host: Host) -> None:
    await add(store, a_completion_event(1), a_completion_event(2))
    await host.session.execute(
        "UPDATE dlq_handler.outbox SET created_at = now() - interval '1 hour' WHERE execution_id = 1"
    )
    waiting = await outbox_sql.pending(store)
    assert waiting.count == 2
    assert 3600 <= waiting.oldest_age_seconds < 3700


async def test_entry_is_unroutable_by_its_last_attempt_and_not_by_its_text(
    store: Database, host: Host
) -> None:
    entries = await add(store, a_completion_event(1), a_completion_event(2), holder="me")
    returned, refused = (entry.id for entry in entries)
    await put_back(store, {returned: "NO_ROUTE", refused: "unroutable: so it says"}, unroutable=[returned])
    assert (await outbox_sql.pending(store)).unroutable == 1
    assert [row["problem"] for row in await host.outbox()] == [OutboxProblem.UNROUTABLE, None]

    await put_back(store, {returned: "no answer"}, possibly_published=[returned])
    assert (await outbox_sql.pending(store)).unroutable == 0
    assert [row["problem"] for row in await host.outbox()] == [None, None]


async def test_withheld_entry_is_closed_and_no_longer_counted_as_unroutable(
    store: Database, host: Host
) -> None:
    [entry] = await add(store, a_completion_event(1), holder="me")
    await put_back(store, {entry.id: "NO_ROUTE"}, unroutable=[entry.id])
    await outbox_sql.mark_withheld(store, [entry.id])
    [row] = await host.outbox()
    assert row["problem"] == OutboxProblem.WITHHELD
    assert row["confirmed_at"] is not None
    assert (await outbox_sql.pending(store)).unroutable == 0


async def test_scan_takes_old_confirmed_entries_and_nothing_else(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry_sql, "BATCH_SIZE", 2)
    entries = await add(store, *(a_completion_event(number) for number in range(1, 8)), holder="me")
    await outbox_sql.mark_confirmed(store, [entry.id for entry in entries[:6]])
    await host.session.execute(
        "UPDATE dlq_handler.outbox SET created_at = now() - interval '2 hours' WHERE execution_id <> 1"
    )

    assert await outbox_sql.delete_confirmed(store, older_than_seconds=3600) == 5
    assert [row["execution_id"] for row in await host.outbox()] == [1, 7]


async def test_fresh_completion_events_of_a_batch_are_returned_leased(store: Database, host: Host) -> None:
    ids = await host.add_executions(3)
    letters = [await host.letter_for(execution_id) for execution_id in ids]

    assert executions(await commit_batch(store, letters[::-1], holder="me")) == ids


@pytest.mark.parametrize(
    "retry",
    [
        {"original_execution": "done"},
        {"config": {"retry_of": "done"}},
        {"workflow_task": {"task_name": "a", "task_index": 1, "retry_count": 2}},
    ],
    ids=["by original_execution", "by config.retry_of", "by the workflow task's own count"],
)
async def test_retry_that_a_first_copy_caused_is_found(
    store: Database, host: Host, retry: dict[str, Any]
) -> None:
    parent = await host.add_execution(status="running")
    task = {"task_name": "a", "task_index": 1, "retry_count": 1}
    done = await host.add_execution(status="failed", parent=parent, workflow_task=task)
    assert not await already_retried(store, [done])

    if "config" in retry:
        retry = {"config": {"retry_of": done}}
    elif "original_execution" in retry:
        retry = {"original_execution": done}
    await host.add_execution(status="requested", parent=parent, **retry)

    assert await already_retried(store, [done]) == {done}


@pytest.mark.parametrize(
    "task",
    [
        {"task_name": "b", "task_index": 1, "retry_count": 2},
        {"task_name": "a", "task_index": 2, "retry_count": 2},
        {"task_name": "a", "task_index": 1, "retry_count": 0},
        {"task_name": "a", "task_index": 1},
        {"task_name": "a", "task_index": 1, "retry_count": None},
        {"task_name": "a", "task_index": 1, "retry_count": "two"},
        {"task_name": "a", "task_index": 1, "retry_count": 2.5},
    ],
)
async def test_other_task_of_the_same_workflow_is_no_retry(
    store: Database, host: Host, task: dict[str, Any]
) -> None:
    parent = await host.add_execution(status="running")
    done = await host.add_execution(
        status="failed", parent=parent, workflow_task={"task_name": "a", "task_index": 1, "retry_count": 1}
    )
    await host.add_execution(parent=parent, workflow_task=task)

    assert not await already_retried(store, [done])


async def test_older_attempt_with_a_higher_count_is_no_retry(store: Database, host: Host) -> None:
    """It would withhold the completion event for ever."""
    parent = await host.add_execution(status="running")
    older, done = [
        await host.add_execution(
            status="failed", parent=parent, workflow_task={"task_name": "a", "retry_count": retries}
        )
        for retries in (2, 1)
    ]
    assert not await already_retried(store, [older, done])


async def rows_read(tx: Transaction, sql: str, parameters: dict[str, object]) -> tuple[int, set[str]]:
    """How many entries of the outbox the statement reads, and by which indexes. What it changes is undone."""
    async with tx.connection.begin_nested() as attempt:
        [row] = (await tx.run(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", **parameters)).all()
        await attempt.rollback()
    plans = row[0] if isinstance(row[0], list) else json.loads(row[0])
    scans = [node for node in nodes(plans[0]["Plan"]) if node.get("Alias") in ("waiting", "outbox")]
    read = sum(
        (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"] for scan in scans
    )
    indexes = {node["Index Name"] for node in nodes(plans[0]["Plan"]) if "Index Name" in node}
    return int(read), indexes


@pytest.mark.parametrize(("confirmed", "waiting"), [(20_000, 20), (0, 20_000)])
async def test_neither_those_that_are_confirmed_nor_those_that_are_not_due_are_read_to_find_what_is_due(
    store: Database, monkeypatch: pytest.MonkeyPatch, confirmed: int, waiting: int
) -> None:
    async with store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO own.outbox (message_id, correlation_id, execution_id, is_workflow_task, exchange, routing_key,
                                    body, created_at, next_attempt_at, confirmed_at)
            SELECT gen_random_uuid(), gen_random_uuid(), n, false, '', '', '', now(), now() + interval '1 hour',
                   CASE WHEN n <= CAST(:confirmed AS integer) THEN now() END
              FROM generate_series(1, CAST(:confirmed AS integer) + CAST(:waiting AS integer)) AS n
            """,
            confirmed=confirmed,
            waiting=waiting,
        )
    await add(store, *(a_completion_event(number) for number in range(1_000_001, 1_000_004)))
    async with store.transaction() as tx:
        await tx.run("ANALYZE own.outbox")
    plain, read = Transaction.rows, dict[str, tuple[int, set[str]]]()

    async def rows(tx: Transaction, sql: str, **parameters: object) -> Sequence[Row[Any]]:
        if "WITH due" in sql:
            read["claim"] = await rows_read(tx, sql, parameters)
        return await plain(tx, sql, **parameters)

    async def row(tx: Transaction, sql: str, **parameters: object) -> Row[Any] | None:
        if "AS unroutable" in sql:
            read["pending"] = await rows_read(tx, sql, parameters)
        return (await tx.run(sql, **parameters)).first()

    monkeypatch.setattr(Transaction, "rows", rows)
    monkeypatch.setattr(Transaction, "row", row)
    assert (await outbox_sql.pending(store)).count == waiting + 3
    assert len(await claim(store)) == 3
    assert read["claim"][0] == 3, read
    assert "outbox_due_idx" in read["claim"][1], read
    assert read["pending"][0] == waiting + 3, read
    if confirmed:
        assert read["pending"][1] <= {"outbox_due_idx", "outbox_line_idx"}
        assert read["pending"][1], "the whole table was read"


async def test_entries_are_claimed_in_the_order_in_which_they_became_due(store: Database, host: Host) -> None:
    """Else those that fail again and again would always come first."""
    await add(store, *(a_completion_event(number) for number in (1, 2, 3)))
    await host.session.execute(
        "UPDATE dlq_handler.outbox SET next_attempt_at = now() - make_interval(secs => execution_id)"
    )
    assert executions(await claim(store, limit=2)) == [2, 3]
