"""Browser sessions: a cookie with the name of a token, signed with that token, and their end by a logout.

Promises: the cookie needs no record, so that every replica accepts it and a restart ends no session. A changed token
ends all sessions that began with the old one. The cookie never holds the token itself. A logout does need a record.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time

import structlog
from itsdangerous import BadSignature, Signer, URLSafeTimedSerializer
from starlette.requests import HTTPConnection
from starlette.responses import Response

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, RowRefused, Unavailable
from dlq_handler.web import logouts_sql
from dlq_handler.web.users import NamedToken, Tokens

COOKIE = "dlq_handler_session"
LASTS_SECONDS = 12 * 3600

# Logouts: interval between reads, time limit of the database, and number kept. The oldest are dropped first.
READ_EVERY_SECONDS = 2.0
ANSWER_SECONDS = 1.0
MOST_KEPT = 10_000

_UNAVAILABLE = (TimeoutError, Unavailable, Contended, RowRefused)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    owner: NamedToken
    id: str
    """Random. The cookie itself identifies no session: its signature can be written in several ways."""
    until: int
    """Unix seconds."""
    cookie: str = field(repr=False)


class Sessions:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        # For users without a token. A restart makes another one: forms from before it are refused.
        self._anonymous_key = secrets.token_bytes(32)

    def begin(self, owner: NamedToken) -> Session:
        session_id = secrets.token_urlsafe(12)
        cookie = _serializer(owner).dumps([owner.name, session_id])
        return Session(owner=owner, id=session_id, until=int(time()) + LASTS_SECONDS, cookie=str(cookie))

    def read(self, connection: HTTPConnection) -> Session | None:
        cookie = connection.cookies.get(COOKIE, "").encode(errors="replace")
        for owner in self._tokens:
            try:
                # Ends at its last second: an age of `max_age` is still accepted.
                (name, session_id), begun = _serializer(owner).loads(
                    cookie, max_age=LASTS_SECONDS - 1, return_timestamp=True
                )
            except BadSignature:
                continue
            # Two names may have the same token, and so the same key.
            if name == owner.name:
                until = int(begun.timestamp()) + LASTS_SECONDS
                return Session(owner=owner, id=session_id, until=until, cookie=cookie.decode())
        return None

    def csrf_of(self, session: Session | None) -> str:
        """The secret of a form: a page of another site can send a form here, but cannot read this."""
        signer, signed = self._form(session)
        return signer.get_signature(signed).decode()

    def is_valid_csrf(self, session: Session | None, given: str) -> bool:
        signer, signed = self._form(session)
        return signer.verify_signature(signed, given.encode(errors="replace"))

    def _form(self, session: Session | None) -> tuple[Signer, str]:
        key, signed = (self._anonymous_key, "") if session is None else (session.owner.key, session.id)
        return Signer(
            key, salt="dlq-handler form", key_derivation="hmac", digest_method=hashlib.sha256
        ), signed


def set_cookie(response: Response, session: Session, *, is_secure: bool) -> None:
    response.set_cookie(
        COOKIE, session.cookie, max_age=LASTS_SECONDS, httponly=True, samesite="strict", secure=is_secure
    )


def delete_cookie(response: Response, *, is_secure: bool) -> None:
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=is_secure)


def _serializer(owner: NamedToken) -> URLSafeTimedSerializer:
    signed_by = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeTimedSerializer(owner.key, salt="dlq-handler session", signer_kwargs=signed_by)


class Logouts:
    """Sessions that a logout ended before their time.

    They are kept here, and in the database for the other replicas, which read them within seconds. While the database
    is unavailable, only this replica knows of a logout.
    """

    def __init__(self, database: Database, *, now: Callable[[], float] = monotonic_seconds) -> None:
        self._database, self._now = database, now
        self._ended: dict[str, int] = {}
        """Digest of the session id, and when the session would have ended."""
        self._read_at = float("-inf")

    async def end(self, session: Session) -> None:
        digest = _digest(session)
        self._keep({digest: session.until})
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await logouts_sql.record(
                    self._database, digest, until=datetime.fromtimestamp(session.until, UTC)
                )
        except _UNAVAILABLE as error:
            log.warning("session.end_not_recorded", name=session.owner.name, error=str(error))

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
        except _UNAVAILABLE:
            return  # the logouts that were read before still count
        self._keep({digest: int(until.timestamp()) for digest, until in ended})

    def _keep(self, ended: dict[str, int]) -> None:
        now = time()
        kept = {digest: until for digest, until in (self._ended | ended).items() if until > now}
        latest = sorted(kept.items(), key=lambda one: one[1])[-MOST_KEPT:]
        self._ended = dict(latest)


def _digest(session: Session) -> str:
    """The table holds no id: a reader of the table must not learn what signs a form of the session."""
    return hashlib.sha256(session.id.encode()).hexdigest()
