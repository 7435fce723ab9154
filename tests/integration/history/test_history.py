"""The history has the availability of workers, gaps, diagnoses and operations."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import CursorResult

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.diagnosis import diagnoses_sql
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.view import BrokerFact
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.event import OPERATION_RECORDED, WORKER_AVAILABLE, WORKER_UNAVAILABLE
from dlq_handler.history.history import Span, Workers
from dlq_handler.operations import audit_sql
from dlq_handler.operations.operation import Action, Actor, Client
from dlq_handler.operations.operations import Operations
from dlq_handler.workers.availability import Availability
from tests.support.builders import NOON
from tests.support.host_tables import Host
from tests.support.tcp_proxy import TcpProxy
from tests.support.views import a_view

AVAILABLE, GONE = Availability.AVAILABLE, Availability.UNAVAILABLE
HOUR = timedelta(hours=1)


async def clock(host: Host) -> datetime:
    now: datetime = await host.session.fetchval("SELECT clock_timestamp()")
    return now


async def back(host: Host, interval: str, *tables: str) -> None:
    columns = {"observed_minute": "minute"}
    for table in tables:
        column = columns.get(table, "at")
        await host.session.execute(
            f"UPDATE dlq_handler.{table} SET {column} = {column} - interval '{interval}'"
        )


async def test_minutes_without_a_consumer_are_gaps(store: Database, host: Host) -> None:
    end = (await clock(host)).replace(second=0, microsecond=0) - timedelta(minutes=5)
    window: dict[str, Any] = {"since": end - HOUR, "until": end}
    assert await history_sql.gaps(store, **window) == [], "there was no observation at all"
    await history_sql.record_consuming(store, consuming_seconds=180)
    await history_sql.record_consuming(store, consuming_seconds=180)
    seen: datetime = await host.session.fetchval("SELECT max(minute) FROM dlq_handler.observed_minute")
    assert seen - end in (timedelta(minutes=4), timedelta(minutes=5))
    await host.session.execute("UPDATE dlq_handler.observed_minute SET quarters = 15")
    assert await history_sql.gaps(store, **window) == [], "there was no observation yet"
    for minutes in (45, 15):
        await host.session.execute(
            "INSERT INTO dlq_handler.observed_minute VALUES ('letters', $1)", end - timedelta(minutes=minutes)
        )
    assert await history_sql.gaps(store, **window) == [
        Span(since=end - timedelta(minutes=44), until=end - timedelta(minutes=15)),
        Span(since=end - timedelta(minutes=14), until=end),
    ]


async def test_a_quarter_counts_only_if_a_replica_consumed_throughout_it(store: Database, host: Host) -> None:
    """Another replica's break takes nothing from one that had none."""

    async def observed() -> list[tuple[datetime, int]]:
        rows = await host.session.fetch("SELECT minute, quarters FROM dlq_handler.observed_minute ORDER BY 1")
        return [(row["minute"], row["quarters"]) for row in rows]

    for consuming_seconds in (0, 14):
        await history_sql.record_consuming(store, consuming_seconds=consuming_seconds)
    assert await observed() == []
    await history_sql.record_consuming(store, consuming_seconds=45)
    [(minute, quarters)] = await observed()
    assert quarters in (1, 2, 4, 8)
    await history_sql.record_consuming(store, consuming_seconds=5)
    assert await observed() == [(minute, quarters)]
    await host.session.execute("UPDATE dlq_handler.observed_minute SET quarters = 15 - quarters")
    await history_sql.record_consuming(store, consuming_seconds=45)
    assert (minute, 15) in await observed(), "bits of one minute are added"


async def test_timelines_have_a_segment_and_an_event_for_each_change(store: Database, host: Host) -> None:
    await history_sql.record_workers(store, {1: ("w1", AVAILABLE), 2: ("w2", AVAILABLE)})
    await history_sql.record_workers(store, {1: ("w1", AVAILABLE), 2: ("w2", AVAILABLE)})
    await history_sql.record_workers(store, {1: ("w1", GONE), 2: ("w2", AVAILABLE)}, replica="leader")
    await history_sql.record_workers(store, {1: ("w1", Availability.UNKNOWN), 2: ("w2", AVAILABLE)})
    await history_sql.record_workers(store, {1: ("w1", AVAILABLE)})
    now = await clock(host)

    first, second = await history_sql.timelines(store, since=now - HOUR, until=now + HOUR)

    assert (first.worker_id, first.name, second.name) == (1, "w1", "w2")
    assert [one.availability for one in first.segments] == [AVAILABLE, GONE, AVAILABLE]
    assert first.segments[0].until == first.segments[1].since
    assert now <= first.segments[-1].until <= await clock(host), "not beyond the last observation"
    assert [one.availability for one in second.segments] == [AVAILABLE]
    assert second.segments[-1].until < now, "it is not registered any more"
    events = await events_sql.after(store, 0)
    assert [(one.kind, one.subject, one.detail) for one in events] == [
        (WORKER_UNAVAILABLE, "w1", "1"),
        (WORKER_AVAILABLE, "w1", "1"),
    ]


def a_fleet(size: int, availability: Availability) -> Workers:
    return {number: (f"w{number}", availability) for number in range(1, size + 1)}


def noted_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that is run from now on."""
    plain, noted = Transaction.run, list[str]()

    async def run(tx: Transaction, sql: str, **parameters: object) -> CursorResult[Any]:
        noted.append(sql)
        return await plain(tx, sql, **parameters)

    monkeypatch.setattr(Transaction, "run", run)
    return noted


def is_lock_of_events(sql: str) -> bool:
    return "lock_class" in sql and "hashtext(:schema)" in sql


async def test_a_fleet_is_written_with_as_many_statements_as_one_worker_and_the_global_lock_comes_last(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[Sequence[str]] = []
    for size in (1, 300):
        await history_sql.record_workers(store, a_fleet(size, AVAILABLE))
        with monkeypatch.context() as patched:
            noted = noted_statements(patched)
            await history_sql.record_workers(store, a_fleet(size, GONE))
        counts.append(noted)
        assert is_lock_of_events(noted[-2]), noted
        assert "INTO own.history_event" in noted[-1]
        assert sum(is_lock_of_events(sql) for sql in noted) == 1
    assert len(counts[0]) == len(counts[1])
    events = await events_sql.after(store, 0)
    assert [one.detail for one in events if one.kind == WORKER_UNAVAILABLE] == ["1", *map(str, range(1, 301))]


async def test_the_same_look_of_two_leaders_at_once_is_one_change(store: Database) -> None:
    await history_sql.record_workers(store, a_fleet(50, AVAILABLE))
    async with asyncio.TaskGroup() as leaders:
        for name in ("one", "two"):
            leaders.create_task(history_sql.record_workers(store, a_fleet(50, GONE), replica=name))
    assert len(await events_sql.after(store, 0)) == 50


async def test_a_look_without_a_change_does_not_wait_for_the_global_lock(store: Database) -> None:
    await history_sql.record_workers(store, a_fleet(2, AVAILABLE))
    async with store.transaction() as tx:
        await events_sql.take_turn(tx)
        await history_sql.record_workers(store, a_fleet(2, AVAILABLE))


async def test_the_brake_can_be_released_while_a_whole_fleet_becomes_unavailable(
    store: Database, database: str
) -> None:
    async with TcpProxy.to(database) as proxy:
        far = Database(proxy.url)
        await history_sql.record_workers(far, a_fleet(1500, AVAILABLE))
        proxy.latency_seconds = 0.001
        change = asyncio.create_task(history_sql.record_workers(far, a_fleet(1500, GONE)))
        operating, released = Operations(store, None), 0
        while not change.done() or released == 0:
            await operating.release_brake(
                Actor(username="me", client=Client.CLI), comment="test", for_seconds=60
            )
            released += 1
        await change
        await far.dispose()
    events = await events_sql.after(store, 0, limit=10_000)
    assert sum(one.kind == WORKER_UNAVAILABLE for one in events) == 1500


async def test_a_timeline_continues_from_before_the_window_and_gaps_are_unknown(
    store: Database, host: Host
) -> None:
    await history_sql.record_workers(store, {1: ("w1", GONE)})
    await back(host, "3 hours", "worker_change", "observed_minute")
    await history_sql.record_workers(store, {1: ("w1", GONE)})
    now = await clock(host)
    [timeline] = await history_sql.timelines(store, since=now - HOUR, until=now)
    assert [one.availability for one in timeline.segments] == [Availability.UNKNOWN, GONE]
    assert timeline.segments[0].since == now - HOUR


async def test_what_is_known_of_today_survives_the_scan(store: Database, host: Host) -> None:
    await history_sql.record_workers(store, {1: ("w1", AVAILABLE), 2: ("w2", AVAILABLE)})
    await history_sql.record_workers(store, {1: ("w1", GONE)})
    await back(host, "10 days", "worker_change", "observed_minute")
    await history_sql.record_consuming(store, consuming_seconds=180)
    await history_sql.delete_old(store, older_than_seconds=7 * 86_400)
    now = await clock(host)
    [timeline] = await history_sql.timelines(store, since=now - HOUR, until=now)
    assert (timeline.name, timeline.segments[0].availability) == ("w1", GONE)
    [row] = await host.session.fetch("SELECT count(*) AS minutes FROM dlq_handler.observed_minute")
    assert row["minutes"] == 1


async def test_the_last_change_of_a_worker_that_is_not_registered_is_kept_for_as_long_as_history(
    store: Database, host: Host
) -> None:
    await history_sql.record_workers(store, {1: ("w1", AVAILABLE), 2: ("w2", AVAILABLE)})
    await history_sql.record_workers(store, {1: ("w1", GONE)})
    left = await history_sql.last_change(store, 2)
    assert left is not None
    assert (left.name, left.availability) == ("w2", None)
    await back(host, "10 days", "worker_change")
    await history_sql.delete_old(store, older_than_seconds=7 * 86_400)
    assert await history_sql.last_change(store, 2) is None
    assert await history_sql.last_change(store, 1) is not None, "it is registered"


async def test_diagnoses_are_found_as_they_were_at_any_moment(store: Database) -> None:
    well, ill = diagnose(a_view()), diagnose(a_view(broker=BrokerFact(error="no route to host")))
    async with store.transaction() as tx:
        assert await diagnoses_sql.last(tx) is None
        await diagnoses_sql.record_change(tx, well, at=NOON)
        await diagnoses_sql.record_change(tx, ill, at=NOON + HOUR)
        assert await diagnoses_sql.last(tx) == (NOON + HOUR, list(ill))
    assert await diagnoses_sql.as_of(store, NOON - HOUR) is None
    assert await diagnoses_sql.as_of(store, NOON + HOUR / 2) == (NOON, list(well))
    assert await diagnoses_sql.as_of(store, NOON + 5 * HOUR) == (NOON + HOUR, list(ill))
    await diagnoses_sql.delete_old(store, older_than_seconds=-10 * 365 * 86_400)
    assert await diagnoses_sql.as_of(store, NOON + 5 * HOUR) == (NOON + HOUR, list(ill)), "the last one stays"
    assert await diagnoses_sql.as_of(store, NOON) is None


NIGHT_SHIFT = Actor(username="night-shift", client=Client.API)


async def operate(
    store: Database,
    action: Action,
    actor: Actor = NIGHT_SHIFT,
    *,
    letter_ids: Sequence[int] = (),
    group_id: str | None = None,
    comment: str | None = "it is real",
) -> int:
    async with store.transaction() as tx:
        return await audit_sql.record(
            tx, actor, action, letter_ids=letter_ids, group_id=group_id, comment=comment, result="done"
        )


async def test_operations_are_listed_newest_first_and_are_events(store: Database, host: Host) -> None:
    first = await operate(store, Action.BRAKE_RELEASE)
    me = Actor(username="me@here", client=Client.CLI)
    second = await operate(store, Action.LETTERS_REPROCESS, me, letter_ids=[7], comment=None)
    listed = await audit_sql.list_operations(store)
    assert [
        (one.id, one.username, one.client, one.action, one.target, one.comment, one.result) for one in listed
    ] == [
        (second, "me@here", "cli", "letters.reprocess", "letter 7", None, "done"),
        (first, "night-shift", "api", "brake.release", None, "it is real", "done"),
    ]
    now = await clock(host)
    for wanted, found in (
        ({"action": "brake.release"}, [first]),
        ({"username": "me@here"}, [second]),
        ({"before_id": second}, [first]),
        ({"limit": 1}, [second]),
        ({"since": now}, []),
    ):
        assert [one.id for one in await audit_sql.list_operations(store, **wanted)] == found
    assert {one.kind for one in await events_sql.after(store, 0)} == {OPERATION_RECORDED}
    await back(host, "40 days", "operation")
    third = await operate(store, Action.LETTER_BODY_READ)
    await audit_sql.delete_old(store, older_than_seconds=30 * 86_400)
    assert [one.id for one in await audit_sql.list_operations(store)] == [third]


async def test_operations_on_dead_letters_are_found_by_letter_and_by_group(
    store: Database, host: Host
) -> None:
    before = await clock(host)
    await operate(store, Action.BRAKE_RELEASE)
    of_many = await operate(store, Action.LETTERS_REPROCESS, letter_ids=range(1, 13))
    of_group = await operate(store, Action.LETTERS_REPROCESS, group_id="7f3a0c91de")
    await operate(store, Action.LETTER_BODY_READ, letter_ids=[112])
    asked = partial(audit_sql.operations_on, store, since=before)
    assert [one.id for one in await asked(letter_ids=[12], group_ids=[])] == [of_many]
    both = await asked(letter_ids=[12], group_ids=["7f3a0c91de"])
    assert [one.id for one in both] == [of_group, of_many]
    assert await asked(letter_ids=[13], group_ids=["other"]) == []


async def test_an_operation_that_fails_leaves_no_line(store: Database) -> None:
    async def release_in_vain() -> None:
        async with store.transaction() as tx:
            me = Actor(username="me", client=Client.CLI)
            await audit_sql.record(tx, me, Action.BRAKE_RELEASE, comment="", result="")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await release_in_vain()
    assert await audit_sql.list_operations(store) == []
    assert await events_sql.after(store, 0) == []
