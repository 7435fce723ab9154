"""The stream of what happens, as server-sent events: "this part changed", for whoever then asks for that part.

Promises: whoever comes back with Last-Event-ID misses nothing, or is told to look at everything anew (`reset`); that
the database is away, where all else comes from, is told too; a stream is never silent for long, so that who hears
nothing knows that it is cut off; an open stream ends at once when the sidecar does; there are never more streams than a
bound. Never carries a letter's content: what is shown is asked for, and masked, where everything else is.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dlq_handler.api.follower import Caught, Follower
from dlq_handler.api.shapes import EVERYWHERE, LARGEST_ID
from dlq_handler.clock import monotonic_seconds
from dlq_handler.history.event import HistoryEvent
from dlq_handler.web.errors import RETRY_SECONDS, Refused
from dlq_handler.web.world import UiWorld

KINDS = ("ready", "changed", "reset", "away", "back", "alive")
RECONNECT_MS = 3000
# While the database is away: what is known without it changes too.
AWAY_AGAIN_SECONDS = 10.0


class _Stream(StreamingResponse):
    """Calls `closed` at its end, however it ends: also when nobody was there any more at its beginning."""

    def __init__(self, content: AsyncIterator[str], closed: Callable[[], None]) -> None:
        super().__init__(
            content,
            media_type="text/event-stream",
            # A proxy that collects an answer before it passes it on would keep the news.
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed()


class Teller:
    """What one stream says, and whether it is time to say it again. Pure."""

    def __init__(self, *, alive_every_seconds: float, now: float) -> None:
        self._alive_every_seconds = alive_every_seconds
        self._spoke_at = now
        self._away_told_at: float | None = None
        """None: for all that was told, the database is there."""

    def events(self, news: Caught, *, now: float) -> list[str]:
        told = [*self._of_database(news, now), *_of_history(news)]
        if not told and now - self._spoke_at >= self._alive_every_seconds:
            # An event, not a comment: no script of a page is told of those.
            told = [_event("alive", None, {})]
        if told:
            self._spoke_at = now
        return told

    def _of_database(self, news: Caught, now: float) -> Iterator[str]:
        """Without ids: whoever is cut off now goes on from the last event that it was told of."""
        if news.is_away:
            if self._away_told_at is None or now - self._away_told_at >= AWAY_AGAIN_SECONDS:
                self._away_told_at = now
                yield _event("away", None, {"part": "database"})
        elif self._away_told_at is not None:
            self._away_told_at = None
            yield _event("back", None, {"part": "database"})


class Streams:
    """All open streams of this process."""

    def __init__(self, world: UiWorld) -> None:
        self._world = world
        self._follower = Follower(world.database)
        self._open = 0

    async def open(self, last_id: int | None) -> StreamingResponse:
        # Before the answer begins: a database that is away is then an answer of its own.
        caught = await self._follower.catch_up(last_id)
        most = self._world.most_streams
        if self._open >= most:
            refused = Refused(503, f"{most} event streams are open, which is the limit. Close one.")
            refused.headers = {"Retry-After": str(RETRY_SECONDS)}
            raise refused
        # From here to the answer nobody else's turn comes, so that no two take the last place.
        self._open += 1
        return _Stream(self._news(caught), self._closed)

    def _closed(self) -> None:
        self._open -= 1

    async def _news(self, caught: Caught) -> AsyncIterator[str]:
        # With an id, so that a browser which hears nothing else knows from where to go on. While there is something to
        # tell, without one: a browser that is cut off before it was told must ask from where it asked before.
        is_behind = caught.is_reset or bool(caught.events)
        here = None if is_behind else caught.last_id
        every_seconds = self._world.alive_every_seconds
        content = {"instance": self._world.instance, "alive_every_seconds": every_seconds}
        yield _event("ready", here, content, retry=RECONNECT_MS)
        teller = Teller(alive_every_seconds=every_seconds, now=monotonic_seconds())
        news: Caught | None = caught
        while news is not None:
            for event in teller.events(news, now=monotonic_seconds()):
                yield event
            news = await self._next(news.last_id)

    async def _next(self, last_id: int) -> Caught | None:
        """None: the sidecar ends. At once, whatever is waited for: a database that is away takes seconds to say so."""
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


def event_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["events"], responses=EVERYWHERE)
    streams = Streams(world)

    @router.get(
        "/events",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {}}, "description": ", ".join(KINDS)}},
    )
    async def events(
        # 0: nothing had happened yet when the page was made.
        after: Annotated[int | None, Query(ge=0, le=LARGEST_ID)] = None,
        last_event_id: Annotated[str | None, Header(max_length=40)] = None,
    ) -> StreamingResponse:
        """From now on, or from after the event with this id on."""
        return await streams.open(_number(last_event_id) if last_event_id else after)

    return router


def _number(text: str) -> int:
    # Whatever it is, it is none of ours: then everything is to be looked at anew.
    return int(text) if text.isascii() and text.isdigit() and int(text) <= LARGEST_ID else LARGEST_ID


def _of_history(news: Caught) -> Iterator[str]:
    if news.is_reset:
        yield _event("reset", news.last_id, {})
    for one in news.events:
        yield _changed(one)


def _changed(event: HistoryEvent) -> str:
    content = {
        "part": event.part,
        "kind": event.kind,
        "subject": event.subject,
        "detail": event.detail,
        "at": event.at.isoformat(),
    }
    return _event("changed", event.id, content)


def _event(kind: str, number: int | None, content: object, *, retry: int | None = None) -> str:
    reconnect = "" if retry is None else f"retry: {retry}\n"
    place = "" if number is None else f"id: {number}\n"
    # JSON has no line break outside of a string, and escapes those within: one line, whatever it holds.
    return f"{reconnect}{place}event: {kind}\ndata: {json.dumps(content)}\n\n"
