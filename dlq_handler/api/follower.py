"""Follow the events that all replicas write. However many streams are open, the database is asked once a second."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.history import events_sql
from dlq_handler.history.event import HistoryEvent

MOST_BACKLOG = 200
# So long after the last question what is remembered is older than what anybody who still follows has seen.
FORGET_AFTER_INTERVALS = 5
# As long as the pages wait for it: what is away for them is away for the streams.
ANSWER_SECONDS = 5.0
_AWAY = (TimeoutError, Unavailable, Contended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """Events for a client that was connected before."""

    events: list[HistoryEvent] = field(default_factory=list)
    last_id: int
    """Id of the last event; there are no later ones yet."""
    is_reset: bool = False
    """Too many events, or retention deleted some: the client must reload everything."""
    is_away: bool = False
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
        self._is_away = False

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
        if self._is_away:
            return Caught(last_id=last_id, is_away=True)
        if self._floor <= last_id:
            news = [one for one in self._recent if one.id > last_id]
            return Caught(events=news, last_id=news[-1].id if news else last_id)
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await self.catch_up(last_id)
        except _AWAY:
            return Caught(last_id=last_id, is_away=True)

    async def _read(self, last_id: int) -> None:
        if self._now() - self._asked_at > FORGET_AFTER_INTERVALS * self.interval_seconds:
            # Otherwise a client that comes after an hour would wait until that hour is read, one backlog per interval.
            self._recent.clear()
            self._floor = last_id
        newest = self._recent[-1].id if self._recent else self._floor
        try:
            async with asyncio.timeout(self._answer_seconds):
                news = await events_sql.after(self._database, newest, limit=MOST_BACKLOG)
        except _AWAY:
            self._is_away = True
            return
        finally:
            # At its end, and also when it fails: a database that hangs is not waited for by all in turn.
            self._asked_at = self._now()
        self._is_away = False
        dropped = len(self._recent) + len(news) - MOST_BACKLOG
        if dropped > 0:
            self._floor = [*self._recent, *news][dropped - 1].id
        self._recent.extend(news)
