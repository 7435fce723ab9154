"""Tokens: each has one owner, and a comparison reveals nothing else."""

import pytest

from dlq_handler.web.guard import local_path
from dlq_handler.web.users import Role, Tokens, named_token

ADA = named_token(name="ada", role=Role.OPERATE, token="0123456789abcdef")
BOB = named_token(name="bob", role=Role.READ, token="fedcba9876543210")


def test_a_token_has_its_owner() -> None:
    tokens = Tokens([ADA, BOB])
    assert tokens.owner_of("0123456789abcdef") is ADA
    assert tokens.owner_of("fedcba9876543210") is BOB


@pytest.mark.parametrize("token", ["", "0123456789abcde", "0123456789abcdeF", "é", "\udc80", "x" * 100_000])
def test_any_other_has_none(token: str) -> None:
    assert Tokens([ADA, BOB]).owner_of(token) is None


def test_it_is_shown_nowhere() -> None:
    assert "0123456789abcdef" not in repr(ADA)
    assert "key" not in repr(ADA)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/letters?search=7&x=%20", "/letters?search=7&x=%20"),
        ("/", "/"),
        ("", "/"),
        ("https://evil.example/", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: x", "/"),
        ("letters", "/"),
    ],
)
def test_a_login_leads_to_a_path_of_ours(given: str, path: str) -> None:
    assert local_path(given) == path
