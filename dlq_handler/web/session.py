"""The browser's session: a cookie with the name of a token, signed with that token, and the end of it by a logout.

Promises: the cookie needs no record, so that any replica accepts it and a restart ends no session; a token that was
changed ends all sessions begun with the old one; the cookie never holds the token itself. A logout does need a record.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time

import structlog
from starlette.requests import HTTPConnection
from starlette.responses import Response

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, RowRejected, Unavailable
from dlq_handler.web import logouts_sql
from dlq_handler.web.users import NamedToken, Tokens

COOKIE = "dlq_handler_session"
LASTS_SECONDS = 12 * 3600
# Ours have 10. Python refuses to read a number of thousands, and a cookie may hold whatever somebody likes.
_MOST_DIGITS = 12

# Logouts: interval between reads, time limit of the database, and number kept. The oldest are dropped first.
READ_EVERY_SECONDS = 2.0
ANSWER_SECONDS = 1.0
MOST_KEPT = 10_000

_AWAY = (TimeoutError, Unavailable, Contended, RowRejected)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    owner: NamedToken
    cookie: str = field(repr=False)
    until: int
    """Unix seconds."""


class Sessions:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        # For whoever is let in without a token. Another one after a restart: forms from before are refused.
        self._anonymous_key = secrets.token_bytes(32)

    def begin(self, owner: NamedToken, *, now: float) -> Session:
        until = int(now) + LASTS_SECONDS
        salt = secrets.token_urlsafe(12)
        said = f"{owner.name}|{until}|{salt}"
        return Session(owner=owner, until=until, cookie=f"{said}|{_signed(owner.key, 'session', said)}")

    def read(self, connection: HTTPConnection, *, now: float) -> Session | None:
        cookie = connection.cookies.get(COOKIE, "")
        said, _, signature = cookie.rpartition("|")
        parts = said.split("|")
        if len(parts) != 3 or not parts[1].isdecimal() or len(parts[1]) > _MOST_DIGITS:
            return None
        if int(parts[1]) <= now:
            return None
        owner = self._tokens.named(parts[0])
        if owner is None or not _is_signed(owner.key, "session", said, signature):
            return None
        return Session(owner=owner, until=int(parts[1]), cookie=cookie)

    def csrf_of(self, session: Session | None) -> str:
        """What a form must bring back: a page of another site can send a form here, but not read this."""
        if session is None:
            return _signed(self._anonymous_key, "form", "")
        return _signed(session.owner.key, "form", session.cookie)

    def is_csrf(self, session: Session | None, given: str) -> bool:
        return hmac.compare_digest(self.csrf_of(session).encode(), given.encode(errors="replace"))


def keep(response: Response, session: Session, *, is_secure: bool) -> None:
    response.set_cookie(
        COOKIE, session.cookie, max_age=LASTS_SECONDS, httponly=True, samesite="strict", secure=is_secure
    )


def forget(response: Response, *, is_secure: bool) -> None:
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=is_secure)


def _signed(key: bytes, purpose: str, said: str) -> str:
    digest = hmac.digest(key, f"{purpose}\0{said}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _is_signed(key: bytes, purpose: str, said: str, signature: str) -> bool:
    return hmac.compare_digest(_signed(key, purpose, said).encode(), signature.encode(errors="replace"))


class Logouts:
    """Sessions that a logout ended before their time.

    They are kept here, and in the database for the other replicas, which read them within seconds. While the database
    is unavailable, only this replica knows of a logout.
    """

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
                await logouts_sql.record(
                    self._database, digest, until=datetime.fromtimestamp(session.until, UTC)
                )
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
                ended = await logouts_sql.recent(self._database, limit=MOST_KEPT)
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
