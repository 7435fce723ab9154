"""The users of the ui listener, and the settings that are refused."""

import json
from pathlib import Path

import pytest

from dlq_handler.settings import ConfigError, Settings, load


@pytest.fixture(autouse=True)
def token(folder: Path) -> None:
    (folder / "ops").write_text("0123456789abcdef\n")


def loaded_from(ui: str, **variables: str) -> Settings:
    Path("config.yaml").write_text(f"dlq_handler: {{ui: {ui}}}\n")
    return load(None, variables).settings


def problems_of(ui: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded_from(ui, **variables)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_this_machines_own_addresses_need_no_token(host: str) -> None:
    assert loaded_from(f"{{host: '{host}'}}").dlq_handler.ui.is_local


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "dlq.example", "localhost.example"])
def test_any_other_address_is_refused_without_a_token(host: str) -> None:
    (problem,) = problems_of(f"{{host: '{host}'}}")
    assert problem.startswith(f"config.yaml:1: dlq_handler.ui.host is '{host}' without dlq_handler.ui.tokens")
    assert "add a token" in problem

    token = "tokens: [{name: ops, role: operate, token_file: ops}]"
    assert loaded_from(f"{{host: '{host}', {token}}}").dlq_handler.ui.host == host


def test_a_listener_that_is_switched_off_is_not_refused() -> None:
    assert not loaded_from("{enabled: false, host: 0.0.0.0}").dlq_handler.ui.enabled


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "names 'file' for ops, which cannot be read (No such file or directory)"),
        (b"", "names 'file' for ops, which is empty"),
        (b" \n", "names 'file' for ops, which is empty"),
        (b"secret789012345", "names 'file' for ops, which holds 15 characters"),
        (b"secret 890123456", "holds characters that no HTTP header can carry"),
        ("secret789012345ä".encode(), "holds characters that no HTTP header can carry"),
        (b"\xff" * 20, "cannot be read (not text in UTF-8)"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_named_and_never_quoted(
    content: bytes | None, message: str
) -> None:
    if content is not None:
        Path("file").write_bytes(content)
    (problem,) = problems_of("{tokens: [{name: ops, role: operate, token_file: file}]}")
    assert message in problem
    assert "secret" not in problem


def test_two_who_share_a_name_or_a_token_are_refused() -> None:
    two = "{{tokens: [{{name: a, role: read, token_file: ops}}, {{name: {}, role: read, token_file: {}}}]}}"
    Path("other").write_text("another token, of another one"[:7].ljust(16, "x"))
    (problem,) = problems_of(two.format("b", "ops"))
    assert "gives a and b the same token" in problem
    (problem,) = problems_of(two.format("a", "other"))
    assert "has a name twice" in problem


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("[{name: ops, role: admin, token_file: ops}]", "dlq_handler.ui.tokens (item 0) is 'admin'"),
        ("[{name: 'a b', role: read, token_file: ops}]", "wanted a name of 1 to 64 letters"),
        ("[{name: ops, role: read}]", "wanted a list of {name, role: read|operate, token_file}"),
        ("[{name: ops, role: read, token_file: ops, tokenn: x}]", "dlq_handler.ui.tokens (item 0)"),
        ("{name: ops}", "wanted a list of {name, role: read|operate, token_file}"),
        ("ops", "in a variable a JSON array of such objects"),
    ],
)
def test_a_token_that_is_not_one_is_refused_with_what_was_wanted(tokens: str, message: str) -> None:
    (problem,) = problems_of(f"{{tokens: {tokens}}}")
    assert message in problem


def test_tokens_may_come_by_variable() -> None:
    given = json.dumps([{"name": "ops", "role": "operate", "token_file": "ops"}])
    (token,) = loaded_from("{}", ATTUNE__DLQ_HANDLER__UI__TOKENS=given).dlq_handler.ui.tokens
    assert (token.name, token.role) == ("ops", "operate")


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://dlq.example", "https://dlq.example"),
        ("https://DLQ.example:443/", "https://dlq.example"),
        ("http://dlq.example:8080", "http://dlq.example:8080"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_the_external_address_is_kept_as_browsers_write_it(given: str, origin: str) -> None:
    assert loaded_from(f"{{external_url: '{given}'}}").dlq_handler.ui.external_url == origin


@pytest.mark.parametrize(
    "given",
    ["dlq.example", "ftp://dlq.example", "https://a:b@dlq.example", "https://dlq.example/ui", "https://x:y"],
)
def test_an_external_address_that_cannot_be_compared_is_refused(given: str) -> None:
    (problem,) = problems_of(f"{{external_url: '{given}'}}")
    assert "wanted an address such as https://dlq.example, without a path and without a user" in problem


def test_an_external_address_without_tokens_is_a_warning() -> None:
    Path("config.yaml").write_text("dlq_handler: {ui: {external_url: 'https://dlq.example'}}")
    (warning,) = load(None, {}).warnings
    assert "requests that a proxy forwards are refused" in warning
