"""The browser's session: a cookie that says whose token was shown, signed with that token.

Promises: nothing is kept here, so that any replica knows the cookie and a restart ends no session; a token that was
changed ends all sessions begun with the old one; the cookie never holds the token itself. A logout is logouts.py's.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.responses import Response

from dlq_handler.surface.web.tokens import NamedToken, Tokens

COOKIE = "dlq_handler_session"
LASTS_SECONDS = 12 * 3600
# Ours have 10. Python refuses to read a number of thousands, and a cookie may hold whatever somebody likes.
_MOST_DIGITS = 12


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
