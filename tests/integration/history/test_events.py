"""An event is recorded once, in an order in which no reader can miss one, and deleted by retention."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

from dlq_handler.database.engine import Database
from dlq_handler.history import events_sql
from dlq_handler.history.event import BRAKE_TRIPPED, LETTERS_DECIDED, WORKER_LATE, WORKER_UNAVAILABLE, Topic
from tests.support.builders import NOON
from tests.support.eventually import eventually
from tests.support.host_tables import Host


async def record(store: Database, kind: str = LETTERS_DECIDED, **changes: Any) -> None:
    async with store.transaction() as tx:
        await events_sql.record_event(
            tx, **({"topic": Topic.LETTERS, "kind": kind, "replica": "one"} | changes)
        )


async def test_events_are_read_in_order_from_any_id(store: Database) -> None:
    assert (await events_sql.latest_id(store), await events_sql.oldest_id(store)) == (0, None)
    await record(store, WORKER_UNAVAILABLE, topic=Topic.WORKERS, subject="worker-python", detail="7", at=NOON)
    await record(store)
    first, second = await events_sql.after(store, 0)
    assert (first.at, first.topic, first.kind, first.subject, first.detail, first.replica) == (
        NOON,
        "workers",
        WORKER_UNAVAILABLE,
        "worker-python",
        "7",
        "one",
    )
    assert await events_sql.after(store, first.id) == [second]
    assert await events_sql.latest_id(store) == second.id
    assert [one.id for one in await events_sql.after(store, 0, limit=1)] == [first.id]


async def test_a_reader_never_misses_one_that_was_committed_late(store: Database, host: Host) -> None:
    """The first writer commits last and keeps its place: the second waits for it."""
    has_recorded, may_commit = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        async with store.transaction(lock_timeout_ms=20_000) as tx:
            await events_sql.record_event(tx, topic=Topic.BRAKE, kind="slow", replica="one")
            has_recorded.set()
            await may_commit.wait()

    async def quick() -> None:
        async with store.transaction(lock_timeout_ms=20_000) as tx:
            await events_sql.record_event(tx, topic=Topic.BRAKE, kind="quick", replica="two")

    async def is_waiting() -> bool:
        assert not second.done(), "it did not wait: a reader would have seen it, and never the first"
        return bool(await host.session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    async with asyncio.TaskGroup() as both:
        both.create_task(slow())
        await has_recorded.wait()
        second = both.create_task(quick())
        await eventually(is_waiting)
        assert await events_sql.after(store, 0) == []
        may_commit.set()
    assert [one.kind for one in await events_sql.after(store, 0)] == ["slow", "quick"]


async def test_an_event_that_all_replicas_see_is_recorded_once(store: Database) -> None:
    async with asyncio.TaskGroup() as replicas:
        for name in ("one", "two", "three"):
            replicas.create_task(
                record(store, BRAKE_TRIPPED, topic=Topic.BRAKE, replica=name, at=NOON, once=True)
            )
    await record(store, BRAKE_TRIPPED, topic=Topic.BRAKE, at=NOON + timedelta(seconds=1), once=True)
    assert [one.at for one in await events_sql.after(store, 0)] == [NOON, NOON + timedelta(seconds=1)]


async def test_markers_are_what_stands_on_the_chart_of_a_window(store: Database) -> None:
    for minutes, kind in enumerate(
        (WORKER_UNAVAILABLE, LETTERS_DECIDED, WORKER_LATE, BRAKE_TRIPPED, WORKER_UNAVAILABLE)
    ):
        await record(store, kind, at=NOON + timedelta(minutes=minutes))
    found = await events_sql.markers(store, since=NOON, until=NOON + timedelta(minutes=4))
    assert [one.kind for one in found] == [WORKER_UNAVAILABLE, BRAKE_TRIPPED]


async def test_old_ones_are_deleted_and_those_of_letters_first(store: Database, host: Host) -> None:
    now: datetime = await host.session.fetchval("SELECT now()")
    for hours in (200, 3, 0):
        await record(store, WORKER_UNAVAILABLE, at=now - timedelta(hours=hours))
        await record(store, LETTERS_DECIDED, at=now - timedelta(hours=hours))
    await events_sql.delete_old(store, older_than_seconds=7 * 86_400)
    left = await events_sql.after(store, 0)
    assert [one.kind for one in left] == [WORKER_UNAVAILABLE, WORKER_UNAVAILABLE, LETTERS_DECIDED]
    # A reader that has only the event of three hours ago has missed some, and gets a reset.
    assert await events_sql.oldest_id(store) == left[1].id
    await host.session.execute("UPDATE dlq_handler.history_event SET at = at - interval '2 hours'")
    assert await events_sql.oldest_id(store) == left[2].id + 1, "in a quiet hour nothing was missed"


async def test_their_number_is_bounded(store: Database, host: Host, monkeypatch: Any) -> None:
    monkeypatch.setattr(events_sql, "MOST_KEPT", 3)
    for _ in range(5):
        await record(store)
    await events_sql.delete_old(store, older_than_seconds=86_400)
    assert len(await events_sql.after(store, 0)) == 3
