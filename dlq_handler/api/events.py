"""The event stream, as server-sent events: names the topic that changed, so that a client reloads it.

Promises: a client that reconnects with Last-Event-ID misses nothing, or receives `reset` and reloads everything. The
stream reports an unavailable database, which is the source of all other events. It is never silent for longer than
`alive_every_seconds`, so that a client can detect a cut connection. It ends at once when the replica stops, and when
the client stops reading. The number of open streams is bounded, and the database is asked once a second, however many
there are. An event never carries the content of a dead letter.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Header, Query
from pydantic_core import to_json
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dlq_handler.api.shapes import EVERYWHERE, LARGEST_ID
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.history import events_sql
from dlq_handler.history.event import HistoryEvent
from dlq_handler.web.errors import RETRY_SECONDS, Refused
from dlq_handler.web.world import UiWorld

KINDS = ("ready", "changed", "reset", "unavailable", "available", "alive")
RECONNECT_MS = 3000
# Components that do not need the database change while it is unavailable: clients reload them at this interval.
REPEAT_SECONDS = 10.0
# Longer than the listener's own limit for unread answers, which closes the connection without an error.
SEND_SECONDS = 30.0


MOST_BACKLOG = 200
# After this time without a query every client that still follows has received all that is remembered.
FORGET_AFTER_INTERVALS = 5
# As long as pages wait for the database, so that both report the same outage.
ANSWER_SECONDS = 5.0
_UNAVAILABLE = (TimeoutError, Unavailable, Contended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """Events for a client that was connected before."""

    events: list[HistoryEvent] = field(default_factory=list)
    last_id: int
    """Id of the last event; there are no later ones yet."""
    is_reset: bool = False
    """Too many events, or retention deleted some: the client must reload everything."""
    is_unavailable: bool = False
    """The database does not answer: whether there are events is unknown."""


class Follower:
    def __init__(
        self,
        database: Database,
        *,
        interval_seconds: float = 1.0,
        answer_seconds: float = ANSWER_SECONDS,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._database, self._now = database, now
        self.interval_seconds, self._answer_seconds = interval_seconds, answer_seconds
        self._turn = asyncio.Lock()
        self._recent: deque[HistoryEvent] = deque(maxlen=MOST_BACKLOG)
        # Everything after this id is in `_recent`, after the first read.
        self._floor = 0
        self._asked_at = float("-inf")
        self._is_unavailable = False

    async def catch_up(self, last_id: int | None) -> Caught:
        """`last_id`: the last one that the asker has seen; None: it begins now. Raises `Unavailable`."""
        latest = await events_sql.latest_id(self._database)
        if last_id is None or last_id == latest:
            return Caught(last_id=latest)
        oldest = await events_sql.oldest_id(self._database)
        is_gap = last_id > latest or oldest is None or last_id + 1 < oldest
        if not is_gap:
            missed = await events_sql.after(self._database, last_id, limit=MOST_BACKLOG + 1)
            if len(missed) <= MOST_BACKLOG:
                return Caught(events=missed, last_id=missed[-1].id if missed else last_id)
        return Caught(last_id=latest, is_reset=True)

    async def after(self, last_id: int) -> Caught:
        """For one who has caught up."""
        async with self._turn:
            if self._now() - self._asked_at >= self.interval_seconds:
                await self._read(last_id)
        # To all streams alike, or one page would report the outage and the one beside it would not.
        if self._is_unavailable:
            return Caught(last_id=last_id, is_unavailable=True)
        if self._floor <= last_id:
            news = [one for one in self._recent if one.id > last_id]
            return Caught(events=news, last_id=news[-1].id if news else last_id)
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await self.catch_up(last_id)
        except _UNAVAILABLE:
            return Caught(last_id=last_id, is_unavailable=True)

    async def _read(self, last_id: int) -> None:
        if self._now() - self._asked_at > FORGET_AFTER_INTERVALS * self.interval_seconds:
            # Otherwise a client that comes after an hour would wait until that hour is read, one backlog per interval.
            self._recent.clear()
            self._floor = last_id
        newest = self._recent[-1].id if self._recent else self._floor
        try:
            async with asyncio.timeout(self._answer_seconds):
                news = await events_sql.after(self._database, newest, limit=MOST_BACKLOG)
        except _UNAVAILABLE:
            self._is_unavailable = True
            return
        finally:
            # At its end, and also when it fails: a database that hangs is not waited for by all in turn.
            self._asked_at = self._now()
        self._is_unavailable = False
        dropped = len(self._recent) + len(news) - MOST_BACKLOG
        if dropped > 0:
            self._floor = [*self._recent, *news][dropped - 1].id
        self._recent.extend(news)


class Streams:
    """All open streams of this process."""

    def __init__(self, world: UiWorld) -> None:
        self._world = world
        self._follower = Follower(world.database)
        self._open = 0

    async def open(self, last_id: int | None) -> Response:
        # Before the response begins: an unavailable database is then a response of its own.
        caught = await self._follower.catch_up(last_id)
        most = self._world.most_streams
        if self._open >= most:
            refused = Refused(503, f"{most} event streams are open, which is the limit. Close one.")
            refused.headers = {"Retry-After": str(RETRY_SECONDS)}
            raise refused
        # No await from here to the response: two requests cannot take the last place.
        self._open += 1
        return _Stream(self, self._events(caught), alive_every_seconds=self._world.alive_every_seconds)

    def closed(self) -> None:
        self._open -= 1

    async def _events(self, caught: Caught) -> AsyncIterator[ServerSentEvent]:
        # With an id, so that a browser that receives no other event knows where to resume. Without one while events are
        # pending: a browser that is cut off before it received them must ask from the same place again.
        is_behind = caught.is_reset or bool(caught.events)
        content = {
            "replica": self._world.replica,
            "alive_every_seconds": self._world.alive_every_seconds,
        }
        yield _event("ready", content, number=None if is_behind else caught.last_id, retry=RECONNECT_MS)
        database = DatabaseEvents()
        news: Caught | None = caught
        while news is not None:
            for event in (*database.events(news, now=monotonic_seconds()), *_history(news)):
                yield event
            news = await self._next(news.last_id)

    async def _next(self, last_id: int) -> Caught | None:
        """None: the replica stops. At once: an unavailable database takes seconds to answer."""
        asking = asyncio.ensure_future(self._ask(last_id))
        stopping = asyncio.ensure_future(self._world.stop.wait())
        try:
            await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
            return None if stopping.done() else asking.result()
        finally:
            asking.cancel()
            stopping.cancel()

    async def _ask(self, last_id: int) -> Caught:
        await asyncio.sleep(self._follower.interval_seconds)
        return await self._follower.after(last_id)


class _Stream(EventSourceResponse):
    """Gives its place back at the end, also when the client disconnected before the beginning."""

    def __init__(
        self, streams: Streams, events: AsyncIterator[ServerSentEvent], *, alive_every_seconds: float
    ) -> None:
        super().__init__(
            events,
            ping=alive_every_seconds,
            # An event instead of the library's comment: browsers do not report comments to scripts.
            ping_message_factory=lambda: _event("alive", {}),
            send_timeout=SEND_SECONDS,
            sep="\n",
        )
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError as error:
            raise ClientDisconnect from error
        finally:
            self._streams.closed()


class DatabaseEvents:
    """When one stream reports that the database is unavailable, or available again. Pure."""

    def __init__(self) -> None:
        self._reported_at: float | None = None
        """None: the client knows of no outage."""

    def events(self, news: Caught, *, now: float) -> Iterator[ServerSentEvent]:
        """Without ids: a client that is cut off now resumes after the last event of the history that it received."""
        if news.is_unavailable:
            if self._reported_at is None or now - self._reported_at >= REPEAT_SECONDS:
                self._reported_at = now
                yield _event("unavailable", {"component": "database"})
        elif self._reported_at is not None:
            self._reported_at = None
            yield _event("available", {"component": "database"})


def event_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["events"], responses=EVERYWHERE)
    streams = Streams(world)

    @router.get(
        "/events",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {}}, "description": ", ".join(KINDS)}},
    )
    async def events(
        # 0: the history was empty when the page was made.
        after: Annotated[int | None, Query(ge=0, le=LARGEST_ID)] = None,
        last_event_id: Annotated[str | None, Header(max_length=40)] = None,
    ) -> Response:
        """From now on, or from the event after this id on."""
        return await streams.open(_number(last_event_id) if last_event_id else after)

    return router


def _number(text: str) -> int:
    # An id that this service never sent leads to `reset`.
    return int(text) if text.isascii() and text.isdigit() and int(text) <= LARGEST_ID else LARGEST_ID


def _history(news: Caught) -> Iterator[ServerSentEvent]:
    if news.is_reset:
        yield _event("reset", {}, number=news.last_id)
    for one in news.events:
        yield _changed(one)


def _changed(event: HistoryEvent) -> ServerSentEvent:
    content = {
        "topic": event.topic,
        "kind": event.kind,
        "subject": event.subject,
        "detail": event.detail,
        "at": event.at,
    }
    return _event("changed", content, number=event.id)


def _event(
    kind: str, content: object, *, number: int | None = None, retry: int | None = None
) -> ServerSentEvent:
    event_id = None if number is None else str(number)
    return ServerSentEvent(to_json(content).decode(), event=kind, id=event_id, retry=retry, sep="\n")
