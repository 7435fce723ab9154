"""Every replica accepts a session. It ends in time and with its token, and cannot be forged."""

import pytest
from itsdangerous import TimestampSigner
from starlette.requests import HTTPConnection
from starlette.responses import Response

from dlq_handler.web.session import COOKIE, LASTS_SECONDS, Session, Sessions, delete_cookie, set_cookie
from dlq_handler.web.users import NamedToken, Role, Tokens, named_token

TOKEN = "0123456789abcdef"


def ada(token: str = TOKEN) -> NamedToken:
    return named_token(name="ada", role=Role.OPERATE, token=token)


def asked_with(cookie: str) -> HTTPConnection:
    return HTTPConnection({"type": "http", "headers": [(b"cookie", f"{COOKIE}={cookie}".encode())]})


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(Tokens([ada()]))


@pytest.fixture
def session(sessions: Sessions) -> Session:
    return sessions.begin(ada())


def test_another_replica_accepts_the_session(session: Session) -> None:
    found = Sessions(Tokens([ada("another-0123456789"), ada()])).read(asked_with(session.cookie))
    assert found == session
    assert TOKEN not in session.cookie


@pytest.mark.parametrize(
    ("later", "tokens"),
    [
        (LASTS_SECONDS, [ada()]),
        (1, [ada("another-0123456789")]),
        (1, [named_token(name="bob", role=Role.OPERATE, token=TOKEN)]),
        (1, []),
    ],
)
def test_a_session_ends_with_its_time_and_with_its_token(
    session: Session, later: int, tokens: list[NamedToken], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda _: session.until - LASTS_SECONDS + later)
    assert Sessions(Tokens(tokens)).read(asked_with(session.cookie)) is None


def test_a_changed_cookie_is_no_session_or_the_same_one(sessions: Sessions, session: Session) -> None:
    """The last character of a signature has bits without a meaning. A logout must end that spelling too."""
    spellings = set()
    for place in range(len(session.cookie)):
        for character in "0A-_z":
            cookie = session.cookie[:place] + character + session.cookie[place + 1 :]
            found = sessions.read(asked_with(cookie))
            if found is not None:
                spellings.add(cookie)
                assert (found.id, found.until) == (session.id, session.until)
    assert {cookie[:-1] for cookie in spellings} <= {session.cookie[:-1]}


@pytest.mark.parametrize("cookie", ["", ".", "...", "ada.x.y", "é", "a" * 10_000, "W10.aaaaaa.b"])
def test_other_cookies_are_no_session(sessions: Sessions, cookie: str) -> None:
    assert sessions.read(asked_with(cookie)) is None


def test_the_secret_of_a_form_is_valid_for_its_own_session_only(sessions: Sessions, session: Session) -> None:
    other = sessions.begin(ada())
    assert sessions.is_valid_csrf(session, sessions.csrf_of(session))
    assert not sessions.is_valid_csrf(other, sessions.csrf_of(session))
    assert not sessions.is_valid_csrf(None, sessions.csrf_of(session))
    assert not sessions.is_valid_csrf(session, "")
    assert not sessions.is_valid_csrf(session, "é")


def test_without_tokens_the_secret_of_a_form_is_valid_until_a_restart() -> None:
    sessions = Sessions(Tokens())
    assert sessions.is_valid_csrf(None, sessions.csrf_of(None))
    assert not Sessions(Tokens()).is_valid_csrf(None, sessions.csrf_of(None))


@pytest.mark.parametrize("is_secure", [True, False])
def test_scripts_and_other_sites_do_not_get_the_cookie(session: Session, is_secure: bool) -> None:
    kept, deleted = Response(), Response()
    set_cookie(kept, session, is_secure=is_secure)
    delete_cookie(deleted, is_secure=is_secure)
    for answer in (kept, deleted):
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Path=/" in cookie
        assert ("Secure" in cookie) is is_secure
