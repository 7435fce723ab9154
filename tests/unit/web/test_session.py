"""A session is known by any replica, ends in time and with its token, and cannot be made up."""

import pytest
from starlette.requests import HTTPConnection
from starlette.responses import Response

from dlq_handler.web.session import COOKIE, LASTS_SECONDS, Session, Sessions, forget, keep
from dlq_handler.web.users import NamedToken, Role, Tokens, named_token

NOW = 1_800_000_000.0


def ada(token: str = "0123456789abcdef") -> NamedToken:
    return named_token(name="ada", role=Role.OPERATE, token=token)


def asked_with(cookie: str) -> HTTPConnection:
    header = (b"cookie", f"{COOKIE}={cookie}".encode())
    return HTTPConnection({"type": "http", "headers": [header]})


def begun(sessions: Sessions) -> Session:
    return sessions.begin(ada(), now=NOW)


def test_another_replica_knows_the_session() -> None:
    session = begun(Sessions(Tokens([ada()])))
    found = Sessions(Tokens([ada()])).read(asked_with(session.cookie), now=NOW + 1)
    assert found == session


def test_the_cookie_does_not_hold_the_token() -> None:
    assert "0123456789abcdef" not in begun(Sessions(Tokens([ada()]))).cookie


@pytest.mark.parametrize(
    ("later", "tokens"),
    [
        (LASTS_SECONDS, [ada()]),
        (1, [ada("another-0123456789")]),
        (1, [named_token(name="bob", role=Role.OPERATE, token="0123456789abcdef")]),
        (1, []),
    ],
)
def test_a_session_ends_with_its_time_and_with_its_token(later: float, tokens: list[NamedToken]) -> None:
    cookie = begun(Sessions(Tokens([ada()]))).cookie
    assert Sessions(Tokens(tokens)).read(asked_with(cookie), now=NOW + later) is None


def test_no_character_of_it_can_be_changed() -> None:
    sessions = Sessions(Tokens([ada()]))
    cookie = begun(sessions).cookie
    for place in range(len(cookie)):
        forged = cookie[:place] + ("0" if cookie[place] != "0" else "1") + cookie[place + 1 :]
        assert sessions.read(asked_with(forged), now=NOW + 1) is None, forged


@pytest.mark.parametrize("cookie", ["", "|", "|||", "ada|x|y|z", "ada|99999999999|y", "ada|99999999999|y|é"])
def test_what_is_no_session_is_none(cookie: str) -> None:
    assert Sessions(Tokens([ada()])).read(asked_with(cookie), now=NOW) is None


def test_a_forms_secret_is_good_for_its_own_session_only() -> None:
    sessions = Sessions(Tokens([ada()]))
    one, other = begun(sessions), begun(sessions)
    assert sessions.is_csrf(one, sessions.csrf_of(one))
    assert not sessions.is_csrf(other, sessions.csrf_of(one))
    assert not sessions.is_csrf(None, sessions.csrf_of(one))
    assert not sessions.is_csrf(one, "")
    assert not sessions.is_csrf(one, "é")


def test_without_tokens_a_forms_secret_is_good_until_a_restart() -> None:
    sessions = Sessions(Tokens())
    assert sessions.is_csrf(None, sessions.csrf_of(None))
    assert not Sessions(Tokens()).is_csrf(None, sessions.csrf_of(None))


@pytest.mark.parametrize("is_secure", [True, False])
def test_no_script_and_no_other_site_gets_the_cookie(is_secure: bool) -> None:
    kept, gone = Response(), Response()
    keep(kept, begun(Sessions(Tokens([ada()]))), is_secure=is_secure)
    forget(gone, is_secure=is_secure)
    for answer in (kept, gone):
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Path=/" in cookie
        assert ("Secure" in cookie) is is_secure
