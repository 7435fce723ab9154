"""Which names are ours: what a browser may be tricked into asking for is refused."""

import pytest

from dlq_handler.web.guard import Origins

LOCAL = Origins.of(host="127.0.0.1", external_url=None)
PROXIED = Origins.of(host="0.0.0.0", external_url="https://dlq.example")


@pytest.mark.parametrize("header", ["localhost", "localhost:8085", "127.0.0.1:1", "[::1]:8085", "LocalHost"])
def test_this_machine_is_known_by_its_names(header: str) -> None:
    assert LOCAL.has_host(header)
    assert PROXIED.has_host(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0",
        "a@localhost:x",
        "[",
        "10.0.0.1",
    ],
)
def test_any_other_name_is_not(header: str) -> None:
    assert not LOCAL.has_host(header)
    assert not PROXIED.has_host(header)


def test_the_external_name_and_the_address_listened_on_are_ours_too() -> None:
    assert PROXIED.has_host("dlq.example")
    assert not LOCAL.has_host("dlq.example")
    assert Origins.of(host="10.1.2.3", external_url=None).has_host("10.1.2.3:8085")


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://localhost:8085", "localhost:8085", True),
        ("https://localhost:8085", "localhost:8085", True),
        ("http://localhost:8086", "localhost:8085", False),
        ("http://127.0.0.1:8085", "localhost:8085", False),
        ("https://dlq.example", "dlq.example", True),
        ("https://dlq.example", "localhost:8085", True),
        ("http://evil.example", "evil.example", False),
        ("null", "localhost", False),
        ("", "localhost", False),
    ],
)
def test_a_form_is_ours_by_the_page_it_came_from(origin: str, host: str, is_own: bool) -> None:
    assert PROXIED.is_own(origin, host_header=host) is is_own


def test_a_cookie_is_kept_to_https_where_people_come_by_it() -> None:
    assert PROXIED.is_secure
    assert not LOCAL.is_secure
