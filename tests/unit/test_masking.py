"""Secrets in a letter stay hidden, and what one needs to understand it stays readable."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.masking import MASK, masked, masked_body, masked_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "DB_PASSWD_PASS",
        "clientSecret",
        "api_token",
        "X-API-Key",
        "apikey",
        "Authorization",
        "credentials",
        "key",
    ],
)
@pytest.mark.parametrize("value", ["s3cret", 4711, ["s3cret"], {"deep": {"er": "s3cret"}}])
def test_a_secret_name_hides_its_whole_value(name: str, value: object) -> None:
    assert masked({"a": [{name: value}]}) == {"a": [{name: MASK}]}


@pytest.mark.parametrize("name", ["env_vars", "ENV_VARS", "env", "environment_variables"])
def test_the_environment_is_hidden_whole(name: str) -> None:
    assert masked({name: {"HOME": "/root", "X": "s3cret"}}) == {name: MASK}


@pytest.mark.parametrize(
    "name", ["routing_key", "routing-keys", "x-dead-letter-routing-key", "dlq.routing_key"]
)
def test_a_routing_key_is_no_secret(name: str) -> None:
    assert masked({name: ["execution.dispatch.worker.7"]}) == {name: ["execution.dispatch.worker.7"]}
    assert masked_text(f"{name}=execution.dispatch") == f"{name}=execution.dispatch"


@pytest.mark.parametrize("name", ["queue", "execution_id", "action_ref", "x-death", "environment", "count"])
def test_what_is_needed_to_understand_it_stays(name: str) -> None:
    assert masked({name: "worker.7.executions"}) == {name: "worker.7.executions"}


def test_that_there_is_none_is_no_secret() -> None:
    assert masked({"password": None, "use_auth": True}) == {"password": None, "use_auth": True}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://user:s3cret@host/x", "amqp://***@host/x"),
        ("https://s3cret@git.example/a", "https://***@git.example/a"),
        ("postgres://u:s3/c@r#et@host:5432/db", "postgres://***@host:5432/db"),
        ("see https://docs.example/a?b=c for more", "see https://docs.example/a?b=c for more"),
        ("mail a@b.example", "mail a@b.example"),
        ("two amqp://a:b@c and http://d:e@f/g", "two amqp://***@c and http://***@f/g"),
        ("mysql --password=s3cret db", "mysql --password=*** db"),
        ("curl -H 'Authorization: Bearer s3cret' host", "curl -H 'Authorization: ***' host"),
        ("https://host/?api_key=s3cret&page=2", "https://host/?api_key=***&page=2"),
        ('{"token": "s3 cret", "a": 1', '{"token": ***, "a": 1'),
        (r"{\"token\": \"s3 cret\"", r"{\"token\": ***"),
        ("an author: nobody", "an author: ***"),
        ("mysql --password s3cret db", "mysql --password *** db"),
        ("{'password': b's3 cret', 'a': 1}", "{'password': ***, 'a': 1}"),
        ("'password' => 's3 cret', 'a' => 1", "'password' => ***, 'a' => 1"),
        ("{'name': 'DB_PASSWORD', 'value': 's3 cret'}", "{'name': 'DB_PASSWORD', 'value': ***}"),
        ("a routing_keys: [execution.dispatch]", "a routing_keys: [execution.dispatch]"),
        ("PWD=s3cret; ls", "PWD=***; ls"),
    ],
)
def test_secrets_within_a_text_are_hidden(text: str, shown: str) -> None:
    assert masked_text(text) == shown
    assert masked({"command": [text]}) == {"command": [shown]}


@pytest.mark.parametrize("name", ["secret", "env_vars", "clientSecrets", "env"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_json_within_a_string_is_masked_as_json(name: str, times: int) -> None:
    told: object = {name: {"A": "s3cret"}, "after": [7]}
    for _ in range(times):
        told = {"nested": json.dumps(told)}
    shown = masked(told)
    for _ in range(times):
        assert isinstance(shown, dict)
        shown = json.loads(shown["nested"])
    assert shown == {name: MASK, "after": [7]}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "DB_PASSWORD", "value": "s3cret"},
        {"key": "apiToken", "value": ["s3cret"]},
        ["mysql", "--password", "s3cret", "db"],
        ["run it with {'env_vars': {'A': 's3cret'}}"],
        ['log: {"secret": {"A": "s3cret"}}'],
        ["p\0a\0s\0s\0w\0o\0r\0d\0=\0s\0003\0c\0r\0e\0t\0"],
    ],
)
def test_what_names_a_secret_in_another_way_hides_it_too(value: object) -> None:
    shown = json.dumps(masked({"a": value}))
    assert "s3cret" not in shown
    assert MASK in shown
    assert json.dumps(masked({"name": "queue", "value": "q"})) == '{"name": "queue", "value": "q"}'


@pytest.mark.parametrize(
    "secret",
    [
        "env_vars:\n  A: s3cret\n  B:\n    C: s3cret\n\n  D: s3cret\n",
        "env_vars:\r\n  A: s3cret\r\n",
        "env:\n- name: A\n  value: s3cret\n",
        "environment:\n  - A=s3cret\n",
        "'api_tokens':\n- s3cret\n- s3cret\n",
        "password: correct horse s3cret\n",
        "private_key: |\n  BEGIN\n  s3cret\n",
    ],
)
def test_a_block_of_yaml_is_hidden_to_its_end(secret: str) -> None:
    shown = masked_body(f"id: 7\n{secret}queue: q.7\nlist:\n- a: 1\n".encode()).text
    assert "s3cret" not in shown
    assert shown.startswith("id: 7\n")
    assert shown.endswith(f"{MASK}\nqueue: q.7\nlist:\n- a: 1\n")


def test_a_block_within_a_list_ends_with_its_indentation() -> None:
    shown = masked_body(b"- secret:\n    A: s3cret\n  queue: q.7\n- routing_key: r.7\n").text
    assert shown == f"- secret: {MASK}\n  queue: q.7\n- routing_key: r.7\n"


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"password": "s3cret"}).encode("utf-16"),
        json.dumps({"password": "s3cret"}).encode("utf-16-le"),
        json.dumps({"password": "s3cret"}).encode("utf-32"),
        b'\xff{"password": "s3cret"}',
    ],
)
def test_of_what_is_no_text_only_the_size_is_shown(body: bytes) -> None:
    shown = masked_body(body)
    assert "cret" not in shown.text.replace("\0", "")
    assert f"{len(body)} bytes that are no text" in shown.text
    assert (shown.size, shown.is_cut, shown.is_json) == (len(body), False, False)


def test_a_mark_before_the_first_character_keeps_no_body_from_being_json() -> None:
    assert masked_body(json.dumps({"a": 7}).encode("utf-8-sig")).is_json


def test_a_body_is_shown_indented_and_masked() -> None:
    body = json.dumps({"execution_id": 7, "config": {"password": "s3cret", "größe": 1}}).encode()
    shown = masked_body(body)
    assert json.loads(shown.text) == {"execution_id": 7, "config": {"password": MASK, "größe": 1}}
    assert (shown.size, shown.is_cut, shown.is_json) == (len(body), False, True)
    assert "größe" in shown.text


@pytest.mark.parametrize(
    "body",
    [
        b'{"config": {"auth": {"user": "s3cret", "more": ["s3cret"',
        b'{"env_vars": {"A": "s3cret"',
        b'{"a": 1, "tokens": ["s3cret", "s3cret"], "b": ',
        b'{"password": "s3cret',
        b"password=s3cret",
        b'{"url": "amqp://me:s3cret@host',
        b"{'env_vars': {'A': 's3cret'}}",
        b"env_vars: {A: s3cret}",
        b"{env_vars={A=s3cret}}",
        b"Task(env_vars=dict(A='s3cret'))",
        b"map[env_vars:map[A:s3cret]]",
        b'{"nested": "{\\"secret\\": {\\"A\\": \\"s3cret',
        b'{"nested": "{\\"a\\": \\"{\\\\\\"token\\\\\\": \\\\\\"s3cret',
        b'{"script": "env_vars:\\n  A: s3cret',
        b'["--password", "s3cret',
    ],
)
def test_a_body_that_was_cut_off_hides_too_much_rather_than_too_little(body: bytes) -> None:
    shown = masked_body(body)
    assert "s3cret" not in shown.text
    assert MASK in shown.text
    assert not shown.is_json


def test_a_long_body_is_cut_at_a_character() -> None:
    shown = masked_body(json.dumps(["ä" * 20_000], ensure_ascii=False).encode(), limit=100)
    assert shown.is_cut
    assert len(shown.text.encode()) in (99, 100)
    assert shown.size == 40_004


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"\x00",
        b'"\\ud800"',
        b"[" * 100_000,
        b"1" * 10_000,
        b"NaN",
        b'{"a":' * 50 + b"1" + b"}" * 50,
    ],
)
def test_no_body_is_too_odd(body: bytes) -> None:
    assert masked_body(body).text.encode() is not None


@pytest.mark.parametrize(
    "part",
    [
        *(
            "a",
            "key",
            '"key',
            "key=",
            "://",
            "://a:",
            "@",
            "://@",
            '{"key":',
            "\\",
            "' ",
            '"',
            "-",
            "--key ",
            "key:\n",
        ),
        *(
            " ",
            "\n",
            "key \\",
            '"{',
            "[",
            '"[',
            "name=key ",
            "'key",
            "routing_key:[",
            "env",
            "\\'",
            " key:\n",
        ),
    ],
)
def test_no_text_takes_longer_than_its_length_asks_for(part: str) -> None:
    """Quadratic, so much would take many minutes: the test's own time limit is the measure."""
    assert masked_text(part * (200_000 // len(part))) is not None


@given(JSON)
def test_whatever_json_says_can_be_sent(value: object) -> None:
    json.dumps(masked(value), ensure_ascii=False).encode()
    masked_body(json.dumps(value).encode()).text.encode()


@given(st.text(), st.text(alphabet="abc123XYZ", min_size=8))
def test_no_value_of_a_secret_name_survives_anywhere(around: str, secret: str) -> None:
    shown = json.dumps(masked({"x": [{around + "password" + around: {around: secret}}]}))
    assert secret not in shown.replace(around, "") or secret in around
