"""The stream of events: none is missed, it does not delay the end of the process, and everything is bounded."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from dlq_handler.api import events
from dlq_handler.api.events import MOST_BACKLOG, Caught, Follower
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.history import events_sql
from dlq_handler.history.event import HistoryEvent
from tests.support.eventually import eventually
from tests.support.sidecar import sidecar_process
from tests.support.ui import a_ui_world, listening

WITHIN_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    kind: str
    id: int
    """0: it has none."""
    content: dict[str, Any]


class EventStream:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> Event:
        """StopAsyncIteration: the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(WITHIN_SECONDS):
            while True:
                line = await anext(self._lines)
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    return Event(
                        kind=fields["event"],
                        id=int(fields.get("id", "0")),
                        content=json.loads(fields["data"]),
                    )

    async def is_over(self) -> bool:
        try:
            await self.next()
        except StopAsyncIteration:
            return True
        return False


@asynccontextmanager
async def listening_to(url: str, **headers: str) -> AsyncIterator[EventStream]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        httpx.AsyncClient(trust_env=False, timeout=WITHIN_SECONDS) as client,
        client.stream("GET", url, headers=named) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        yield EventStream(answer)


async def record(store: Database, *subjects: str) -> None:
    for subject in subjects:
        async with store.transaction() as tx:
            await events_sql.record_event(
                tx, topic="workers", kind="worker.unavailable", subject=subject, replica="elsewhere"
            )


async def decide(store: Database, count: int) -> None:
    async with store.transaction() as tx:
        await tx.run(
            "INSERT INTO own.history_event (at, topic, kind, replica)"
            " SELECT now(), 'letters', 'letters.decided', 'x' FROM generate_series(1, :count)",
            count=count,
        )


async def test_events_are_streamed_and_missed_ones_follow(ui_store: Database) -> None:
    await record(ui_store, "before")
    async with listening(await a_ui_world(ui_store)) as url:
        async with listening_to(f"{url}/api/v1/events") as stream:
            ready = await stream.next()
            assert (ready.kind, ready.content) == (
                "ready",
                {"replica": "test", "alive_every_seconds": 15.0},
            )
            assert ready.id == await events_sql.latest_id(ui_store), "from here on nothing is missed"
            assert stream.answer.headers["content-type"].startswith("text/event-stream")
            await record(ui_store, "seen\nid: 99\n\nevent: forged")
            seen = await stream.next()
            assert (seen.kind, seen.content["topic"], seen.content["kind"]) == (
                "changed",
                "workers",
                "worker.unavailable",
            )
            assert seen.content["subject"] == "seen\nid: 99\n\nevent: forged", "and one event all the same"
            assert seen.id > ready.id
        await record(ui_store, "missed", "missed too")
        for asked, headers in (
            ("", {"last_event_id": str(seen.id)}),
            (f"?after={seen.id}", {}),
            ("?after=1", {"last_event_id": str(seen.id)}),
        ):
            async with listening_to(f"{url}/api/v1/events{asked}", **headers) as stream:
                ready = await stream.next()
                assert (ready.kind, ready.id) == ("ready", 0), "cut off here, nothing may count as told"
                assert [(await stream.next()).content["subject"] for _ in range(2)] == [
                    "missed",
                    "missed too",
                ]


async def test_a_reader_that_missed_too_much_gets_a_reset(ui_store: Database) -> None:
    await decide(ui_store, MOST_BACKLOG + 10)
    latest = await events_sql.latest_id(ui_store)
    async with listening(await a_ui_world(ui_store)) as url:
        for last in (1, latest + 5, "nonsense", 2**80):
            async with listening_to(f"{url}/api/v1/events", last_event_id=str(last)) as stream:
                ready, reset = await stream.next(), await stream.next()
                assert (ready.kind, reset.kind, ready.id, reset.id) == ("ready", "reset", 0, latest), last
        async with listening_to(f"{url}/api/v1/events", last_event_id=str(latest - 2)) as stream:
            kinds = [(await stream.next()).kind for _ in range(3)]
            assert kinds == ["ready", "changed", "changed"]


async def test_deleted_events_cause_a_reset(ui_store: Database) -> None:
    await record(ui_store, "long ago", "long ago too", "now")
    async with ui_store.transaction() as tx:
        await tx.run("UPDATE own.history_event SET at = now() - interval '8 days' WHERE id <= 2")
    await events_sql.delete_old(ui_store, older_than_seconds=7 * 86_400)
    caught = await Follower(ui_store).catch_up(1)
    assert (caught.is_reset, caught.last_id) == (True, 3)
    assert not (await Follower(ui_store).catch_up(2)).is_reset


async def test_many_who_follow_ask_the_database_once(
    ui_store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[int](), events_sql.after
    clock = [0.0]

    async def counted(database: Database, last_id: int, *, limit: int = 500) -> list[HistoryEvent]:
        asked.append(last_id)
        return await ask(database, last_id, limit=limit)

    monkeypatch.setattr(events_sql, "after", counted)
    follower = Follower(ui_store, now=lambda: clock[0])
    await record(ui_store, "one")
    start = (await follower.catch_up(None)).last_id
    await record(ui_store, "two", "three")
    caught = await asyncio.gather(*(follower.after(start) for _ in range(20)))
    assert [[one.subject for one in each.events] for each in caught] == [["two", "three"]] * 20
    assert len(asked) == 1
    # Later, and with one beside who is further behind than what is remembered.
    clock[0] += 1
    await record(ui_store, "four")
    assert [one.subject for one in (await follower.after(caught[0].last_id)).events] == ["four"]
    assert [one.subject for one in (await follower.after(start - 1)).events] == [
        "one",
        "two",
        "three",
        "four",
    ]


async def test_what_is_remembered_is_bounded_and_has_no_hole(ui_store: Database) -> None:
    clock = [0.0]
    follower = Follower(ui_store, now=lambda: clock[0])
    caught = await follower.after(0)
    start = caught.last_id
    for _ in range(3):
        clock[0] += 1
        await decide(ui_store, 150)
        caught = await follower.after(start)
        if not caught.is_reset:
            assert [one.id for one in caught.events] == list(range(start + 1, caught.last_id + 1))
    assert caught.is_reset, "450 are more than a stream repeats one by one"


async def test_who_comes_after_a_quiet_hour_hears_the_first_news_at_once(ui_store: Database) -> None:
    """Events of a time without readers are not sent to a new reader."""
    clock = [0.0]
    follower = Follower(ui_store, now=lambda: clock[0])
    await record(ui_store, "an hour ago")
    assert [one.subject for one in (await follower.after(0)).events] == ["an hour ago"]
    await decide(ui_store, 3 * MOST_BACKLOG)
    clock[0] += 3600
    start = (await follower.catch_up(None)).last_id
    await record(ui_store, "news")
    assert [one.subject for one in (await follower.after(start)).events] == ["news"]


async def test_there_are_only_so_many_streams(ui_store: Database) -> None:
    world = await a_ui_world(ui_store, most_streams=2)
    async with listening(world) as url, httpx.AsyncClient(trust_env=False) as client:
        async with AsyncExitStack() as open_ones:
            # Kept: the garbage collector closes a stream without a reference.
            streams = [
                await open_ones.enter_async_context(listening_to(f"{url}/api/v1/events")) for _ in range(2)
            ]
            assert [(await stream.next()).kind for stream in streams] == ["ready", "ready"]
            refused = await client.get(f"{url}/api/v1/events")
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")

        async def is_taken() -> bool:
            async with client.stream("GET", f"{url}/api/v1/events") as answer:
                return answer.status_code == 200

        await eventually(is_taken)


async def test_all_streams_outlive_their_database_and_end_with_the_sidecar(
    ui_store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await a_ui_world(ui_store)
    ask = events_sql.after
    is_away = True

    async def away(database: Database, last_id: int, *, limit: int = 500) -> list[HistoryEvent]:
        if is_away:
            raise Unavailable("database", "gone")
        return await ask(database, last_id, limit=limit)

    monkeypatch.setattr(events_sql, "after", away)
    async with (
        listening(world) as url,
        listening_to(f"{url}/api/v1/events") as one,
        listening_to(f"{url}/api/v1/events") as other,
    ):
        for stream in (one, other):
            assert (await stream.next()).kind == "ready"
            event = await stream.next()
            assert (event.kind, event.id, event.content) == ("unavailable", 0, {"component": "database"})
        await record(ui_store, "afterwards")
        is_away = False
        for stream in (one, other):
            event = await stream.next()
            assert (event.kind, event.id, event.content) == ("available", 0, {"component": "database"})
            assert (await stream.next()).content["subject"] == "afterwards"
        world.stop.set()
        assert [await one.is_over(), await other.is_over()] == [True, True]


def test_an_outage_of_the_database_is_reported_again_while_it_lasts() -> None:
    """Components that do not need the database change meanwhile."""
    outages = events.DatabaseEvents()
    sent = [
        [event.event for event in outages.events(Caught(last_id=7, is_unavailable=is_away), now=now)]
        for now, is_away in (
            (1, True),
            (2, True),
            (10.9, True),
            (11, True),
            (12, False),
            (13, False),
            (14, True),
        )
    ]
    assert sent == [["unavailable"], [], [], ["unavailable"], ["available"], [], ["unavailable"]]


async def test_a_stream_without_news_sends_alive_events(ui_store: Database) -> None:
    async with (
        listening(await a_ui_world(ui_store, alive_every_seconds=0.05)) as url,
        listening_to(f"{url}/api/v1/events") as stream,
    ):
        assert [(await stream.next()).kind for _ in range(3)] == ["ready", "alive", "alive"]


async def test_a_client_that_stops_reading_loses_its_stream_and_its_place(
    ui_store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SEND_SECONDS", 0.01)
    streams = events.Streams(await a_ui_world(ui_store, most_streams=1))

    async def never(*_: object) -> Any:
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await never()

    with pytest.raises(ClientDisconnect):
        await (await streams.open(None))({"type": "http", "method": "GET"}, never, send)
    await streams.open(None)  # not refused


async def test_a_database_that_hangs_is_away_for_all_and_waited_for_once(
    ui_store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    async def hang(_database: Database, last_id: int, *, limit: int = 500) -> list[HistoryEvent]:
        asked.append(last_id)
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(events_sql, "after", hang)
    clock = [0.0]
    follower = Follower(ui_store, answer_seconds=0.01, now=lambda: clock[0])
    caught = await asyncio.gather(*(follower.after(3) for _ in range(20)))
    assert caught == [Caught(last_id=3, is_unavailable=True)] * 20
    assert asked == [3]


async def test_a_stream_ends_at_once_while_its_database_does_not_answer(
    ui_store: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = await a_ui_world(ui_store)
    is_asked = asyncio.Event()

    async def hang(*_: object, **__: object) -> list[HistoryEvent]:
        is_asked.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(events_sql, "after", hang)
    async with listening(world) as url, listening_to(f"{url}/api/v1/events") as stream:
        await stream.next()
        await is_asked.wait()
        world.stop.set()
        assert await stream.is_over()
    assert caplog.records == [], "no stream had to be cut short"


async def test_an_open_stream_does_not_hold_up_the_end_of_the_process(
    vhost: str, database: str, tmp_path: Path
) -> None:
    """A real process with a real listener: SIGTERM ends it in order, and the stream with it."""
    async with sidecar_process(tmp_path, vhost, database, grace__shutdown_seconds="20") as sidecar:
        async with listening_to(f"{sidecar.ui_url}/api/v1/events") as stream:
            assert (await stream.next()).kind == "ready"
            assert await sidecar.terminate() == 0
            # The event of the end of the process may come before it.
            while not await stream.is_over():
                pass
        assert sidecar.events("replica.stopped")
        assert not sidecar.events("library.reported")
        [started] = sidecar.events("replica.started")
        assert started["ui_port"] == sidecar.ui_port
