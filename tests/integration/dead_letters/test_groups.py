"""Letters are counted with their record, and the counts are those of the letters on record, whatever happens."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql, records_sql
from dlq_handler.dead_letters import records_sql as letters
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category, group_key_of
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from tests.support.builders import a_dead_letter, a_death
from tests.support.deciding import a_reprocessor, letter_ender
from tests.support.host_tables import COUNTS, Host, assert_counted

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
ALWAYS: dict[str, Any] = {"since": LONG_AGO, "until": datetime(2100, 1, 1, tzinfo=UTC)}


async def counted(host: Host, *, letters: int | None = None) -> None:
    [row] = await host.session.fetch(COUNTS)
    assert_counted(tuple(row.values()), letters=letters)


async def record(store: Database, entries: Sequence[Entry], *, lock_timeout_ms: int = 2_000) -> None:
    async with store.transaction(lock_timeout_ms=lock_timeout_ms) as tx:
        recorded = await records_sql.record_letters(tx, entries, replica="here")
        await groups_sql.count_letters(tx, recorded)


def an_entry(key: str, *, worker: int = 7, outcome: Outcome = Outcome.FAILED, **changes: Any) -> Entry:
    queue = f"worker.{worker}.executions"
    letter = a_dead_letter(key=key, death=a_death(queue=queue), first_death_queue=queue, **changes)
    return Entry(letter=letter, outcome=outcome, explanation="because")


async def letters_of(host: Host, count: int) -> list[DeadLetter]:
    return [await host.letter_for(one) for one in await host.add_executions(count)]


async def test_groups_of_a_window_have_their_counts_the_largest_first(store: Database, host: Host) -> None:
    await record(store, [an_entry("a", worker=1), *(an_entry(f"b{n}", worker=2) for n in range(3))])
    await record(store, [an_entry("c", worker=1, outcome=Outcome.STALE_ATTEMPT)])
    await record(store, [an_entry("d", worker=3, outcome=Outcome.UNRELATED, message_type="Other")])

    found = await groups_sql.groups(store, **ALWAYS)

    assert [(one.group.queue, one.letters, one.failed_by_letter) for one in found] == [
        ("worker.2.executions", 3, 3),
        ("worker.1.executions", 2, 1),
        ("worker.3.executions", 1, 0),
    ]
    assert [one.group.worker_id for one in found] == [2, 1, 3]
    assert (found[2].group.category, found[2].group.detail) == (Category.UNRELATED, "Other")
    assert all(one.last_at == one.group.last_at >= one.group.first_at for one in found)
    assert await groups_sql.count_groups(store, **ALWAYS) == 3
    assert len(await groups_sql.groups(store, **ALWAYS, limit=2)) == 2
    assert await groups_sql.group(store, found[0].group.id) == found[0].group
    assert await groups_sql.group(store, "0000000000") is None
    await counted(host, letters=6)


async def test_a_window_counts_its_own_minutes_alone(store: Database, host: Host) -> None:
    await record(store, [an_entry("a"), an_entry("b", outcome=Outcome.SUPERSEDED)])
    await host.session.execute("UPDATE dlq_handler.letter_minute SET minute = minute - interval '1 hour'")
    await record(store, [an_entry("c")])
    now = await host.session.fetchval("SELECT now()")
    [found] = await groups_sql.groups(
        store, since=now - timedelta(minutes=5), until=now + timedelta(minutes=5)
    )
    assert (found.letters, found.failed_by_letter, found.group.letters) == (1, 1, 3)
    minutes = await groups_sql.letters_per_minute(store, **ALWAYS)
    assert [(one.reason, one.letters) for one in minutes] == [("expired", 2), ("expired", 1)]
    assert minutes[1].minute - minutes[0].minute >= timedelta(hours=1)


async def test_first_actions_are_kept_up_to_a_bound(store: Database) -> None:
    await record(store, [an_entry(f"a{n}", action_ref=f"pack.action_{n}") for n in range(3)])
    await record(store, [an_entry(f"b{n}", action_ref=f"pack.action_{n}") for n in range(40)])
    [found] = await groups_sql.groups(store, **ALWAYS)
    assert found.group.actions == tuple(f"pack.action_{n}" for n in range(5))
    assert found.group.more_actions == 20


async def test_letters_that_are_on_record_already_are_not_counted_again(store: Database, host: Host) -> None:
    await record(store, [an_entry("a"), an_entry("b")])
    await record(store, [an_entry("b"), an_entry("c"), an_entry("c"), an_entry("a")])
    await counted(host, letters=3)


async def test_what_a_quicker_replica_recorded_is_counted_once(store: Database, host: Host) -> None:
    """Both have searched for known keys before either has committed: the insert itself decides which was first."""
    decides = [letter_ender(store, replica=name) for name in ("one", "two")]
    unknown = [a_dead_letter(key=f"{n:03}", execution_id=1000 + n) for n in range(100)]
    async with asyncio.TaskGroup() as replicas:
        replicas.create_task(decides[0].commit(unknown[:70]))
        replicas.create_task(decides[1].commit(unknown[30:][::-1]))
    await counted(host, letters=100)


async def test_replicas_that_count_the_same_groups_never_deadlock(store: Database, host: Host) -> None:
    # Each row takes its time, so that the two are sure to meet half-way.
    await host.session.execute(
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END $$;"
        "CREATE TRIGGER dawdle BEFORE INSERT OR UPDATE ON dlq_handler.letter_group"
        " FOR EACH ROW EXECUTE FUNCTION dawdle()"
    )

    async def count(prefix: str, workers: Sequence[int]) -> None:
        entries = [an_entry(f"{prefix}{worker}", worker=worker) for worker in workers]
        await record(store, entries, lock_timeout_ms=20_000)

    for turn in range(2):
        async with asyncio.TaskGroup() as replicas:
            replicas.create_task(count(f"a{turn}", range(20)))
            replicas.create_task(count(f"b{turn}", range(19, -1, -1)))
    await counted(host, letters=80)


async def test_a_batch_that_is_halved_counts_each_letter_once(store: Database, host: Host) -> None:
    good = await letters_of(host, 9)
    refused = await host.add_execution()
    # Past 8000 bytes the host's NOTIFY fails, and with it every change of the status.
    await host.session.execute(
        "UPDATE execution SET workflow_task = jsonb_build_object('name', repeat('x', 9000)) WHERE id = $1",
        refused,
    )
    bad = await host.letter_for(refused)
    await letter_ender(store).commit([*good[:4], bad, *good[4:]])
    outcomes = {record["outcome"] for record in await host.letters()}
    assert outcomes == {"failed", "update_failed"}
    await counted(host, letters=10)
    [group] = await groups_sql.groups(store, **ALWAYS)
    assert (group.letters, group.failed_by_letter) == (10, 9), "what was refused is of the group of its death"


async def test_a_batch_that_fails_at_its_end_leaves_no_count_behind(store: Database, host: Host) -> None:
    class Died(Exception):
        pass

    async def die() -> None:
        async with store.transaction() as tx:
            recorded = await records_sql.record_letters(tx, [an_entry("a")], replica="here")
            await groups_sql.count_letters(tx, recorded)
            raise Died

    for _ in range(2):
        try:
            await die()
        except Died:
            await counted(host, letters=0)
    await record(store, [an_entry("a")])
    await counted(host, letters=1)


async def test_a_letter_that_fails_its_execution_later_counts_where_it_came_in(
    store: Database, host: Host
) -> None:
    [letter] = await letters_of(host, 1)
    await record(
        store, [Entry(letter=letter, outcome=Outcome.UNKNOWN_EXECUTION, explanation="not yet replicated")]
    )
    # An hour ago: the minute is another one by now.
    for column, table in (("received_at", "letter"), ("minute", "letter_minute")):
        await host.session.execute(f"UPDATE dlq_handler.{table} SET {column} = {column} - interval '1 hour'")
    [kept] = await host.letters()
    await a_reprocessor(store).reprocess(kept["id"])
    [again] = await host.letters()
    assert (again["outcome"], again["group_id"]) == ("failed", kept["group_id"])
    await counted(host, letters=1)


async def test_shadow_records_do_not_count(store: Database, host: Host) -> None:
    [letter] = await letters_of(host, 1)
    await letter_ender(store, is_shadow=True).commit([letter])
    assert [record["group_id"] for record in await host.letters()] == [None]
    await counted(host, letters=0)
    assert await groups_sql.groups(store, **ALWAYS) == []


async def test_record_names_its_group_and_keeps_its_headers(store: Database, host: Host) -> None:
    entry = an_entry("a", headers='{"x-death":[{"count":1}]}')
    await record(store, [entry])
    [row] = await host.letters()
    shown = await letters.show(store, row["id"])
    assert shown is not None
    assert shown.group_id == group_key_of(entry).id
    assert shown.headers == {"x-death": [{"count": 1}]}


async def test_old_minutes_and_groups_of_which_nothing_comes_any_more_are_deleted(
    store: Database, host: Host
) -> None:
    await record(store, [an_entry("a", worker=1)])
    await host.session.execute(
        "UPDATE dlq_handler.letter_minute SET minute = minute - interval '2 days';"
        "UPDATE dlq_handler.letter_group SET last_at = last_at - interval '2 days'"
    )
    await record(store, [an_entry("b", worker=2)])
    assert await groups_sql.delete_minutes(store, older_than_seconds=86_400) == 1
    assert await groups_sql.delete_groups(store, older_than_seconds=86_400) == 1
    [left] = await groups_sql.groups(store, **ALWAYS)
    assert left.group.queue == "worker.2.executions"
