"""Follow the happenings that all replicas write. However many streams are open, the database is asked once a second."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.happening import Happening
from dlq_handler.store import happenings
from dlq_handler.store.engine import Database

MOST_BACKLOG = 200
# So long after the last question what is remembered is older than what anybody who still follows has seen.
FORGET_AFTER_INTERVALS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """What somebody has to be told who was here before."""

    happenings: list[Happening] = field(default_factory=list)
    last_id: int
    """From here on there is nothing to tell yet."""
    is_reset: bool = False
    """Too much happened, or it is swept: whoever asks should look at everything anew."""


class Follower:
    def __init__(
        self,
        database: Database,
        *,
        interval_seconds: float = 1.0,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._database, self._now = database, now
        self.interval_seconds = interval_seconds
        self._turn = asyncio.Lock()
        self._recent: deque[Happening] = deque(maxlen=MOST_BACKLOG)
        # Everything after this id is in `_recent`, once somebody has asked.
        self._floor = 0
        self._asked_at = float("-inf")

    async def catch_up(self, last_id: int | None) -> Caught:
        """`last_id`: the last one that the asker has seen; None: it begins now. Raises `Unavailable`."""
        latest = await happenings.latest_id(self._database)
        if last_id is None or last_id == latest:
            return Caught(last_id=latest)
        oldest = await happenings.oldest_id(self._database)
        is_gap = last_id > latest or oldest is None or last_id + 1 < oldest
        if not is_gap:
            missed = await happenings.after(self._database, last_id, limit=MOST_BACKLOG + 1)
            if len(missed) <= MOST_BACKLOG:
                return Caught(happenings=missed, last_id=missed[-1].id if missed else last_id)
        return Caught(last_id=latest, is_reset=True)

    async def after(self, last_id: int) -> Caught:
        """For one who has caught up. Raises `Unavailable`."""
        async with self._turn:
            if self._now() - self._asked_at >= self.interval_seconds:
                await self._read(last_id)
        if self._floor <= last_id:
            news = [one for one in self._recent if one.id > last_id]
            return Caught(happenings=news, last_id=news[-1].id if news else last_id)
        return await self.catch_up(last_id)

    async def _read(self, last_id: int) -> None:
        idle_seconds = self._now() - self._asked_at
        # Also when it fails: while the database is away it is not asked by all who wait in turn.
        self._asked_at = self._now()
        if idle_seconds > FORGET_AFTER_INTERVALS * self.interval_seconds:
            # Whoever comes after an hour would else wait until that hour is read, a backlog in each interval.
            self._recent.clear()
            self._floor = last_id
        newest = self._recent[-1].id if self._recent else self._floor
        news = await happenings.after(self._database, newest, limit=MOST_BACKLOG)
        dropped = len(self._recent) + len(news) - MOST_BACKLOG
        if dropped > 0:
            self._floor = [*self._recent, *news][dropped - 1].id
        self._recent.extend(news)
