"""Sessions that were ended by a logout before their time, on all replicas.

A cookie is signed and needs no record; a logout does. It is kept here, and in the database for the other replicas,
which read it within seconds. While the database is away, only this replica knows it.
"""

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from time import time

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Contended, RowRejected, Unavailable
from dlq_handler.store import logouts
from dlq_handler.store.engine import Database
from dlq_handler.surface.web.session import Session

READ_EVERY_SECONDS = 2.0
ANSWER_SECONDS = 1.0
# By many logouts of one token's owner the oldest are forgotten; a session ends after 12 h anyway.
MOST_KEPT = 10_000

_AWAY = (TimeoutError, Unavailable, Contended, RowRejected)

log = structlog.get_logger()


class Logouts:
    def __init__(self, database: Database, *, now: Callable[[], float] = monotonic_seconds) -> None:
        self._database, self._now = database, now
        self._ended: dict[str, int] = {}
        """Digest of the cookie, and when the session would have ended."""
        self._read_at = float("-inf")

    async def end(self, session: Session) -> None:
        digest = _digest(session)
        self._keep({digest: session.until})
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await logouts.record(self._database, digest, until=datetime.fromtimestamp(session.until, UTC))
        except _AWAY as error:
            log.warning("session.ended_here_only", name=session.owner.name, error=str(error))

    async def has(self, session: Session) -> bool:
        if self._now() - self._read_at >= READ_EVERY_SECONDS:
            # Before the answer: while one request reads, the others do not.
            self._read_at = self._now()
            await self._read()
        return _digest(session) in self._ended

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                ended = await logouts.recent(self._database, limit=MOST_KEPT)
        except _AWAY:
            return  # what is known here still holds
        self._keep({digest: int(until.timestamp()) for digest, until in ended})

    def _keep(self, ended: dict[str, int]) -> None:
        now = time()
        kept = {digest: until for digest, until in (self._ended | ended).items() if until > now}
        latest = sorted(kept.items(), key=lambda one: one[1])[-MOST_KEPT:]
        self._ended = dict(latest)


def _digest(session: Session) -> str:
    """Not the cookie: who reads the table must not be able to use it on a replica that has not read it yet."""
    return hashlib.sha256(session.cookie.encode(errors="replace")).hexdigest()
