"""Secrets in a dead letter, a log record or a setting stay hidden. Facts that explain the message stay readable."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlq_handler.masking import (
    MASK,
    is_secret_name,
    masked,
    masked_body,
    masked_text,
    masked_url,
    without_passwords,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzM2NyZXQifQ.s3cret"
PEM = "-----BEGIN RSA PRIVATE KEY-----\ns3cret\ns3cret\n-----END RSA PRIVATE KEY-----"


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
        "Cookie",
        "Set-Cookie",
    ],
)
@pytest.mark.parametrize("value", ["s3cret", 4711, ["s3cret"], {"deep": {"er": "s3cret"}}])
def test_a_secret_name_hides_its_whole_value(name: str, value: object) -> None:
    assert masked({"a": [{name: value}]}) == {"a": [{name: MASK}]}


@pytest.mark.parametrize(
    "name", ["passed", "passing", "url", "queue", "x-death", "routing_key", "x-dead-letter-routing-key"]
)
def test_other_names_are_not_secret(name: str) -> None:
    assert not is_secret_name(name)
    assert masked({name: ["worker.7.executions"]}) == {name: ["worker.7.executions"]}


@pytest.mark.parametrize("name", ["env_vars", "ENV_VARS", "env", "environment_variables", "Environment"])
def test_the_environment_is_hidden_whole(name: str) -> None:
    assert masked({name: {"HOME": "/root", "X": "s3cret"}}) == {name: MASK}
    assert masked({name: ["X=s3cret"]}) == {name: MASK}
    assert masked({"environment": "production"}) == {"environment": "production"}


def test_an_absent_secret_is_not_hidden() -> None:
    assert masked({"password": None, "use_auth": True}) == {"password": None, "use_auth": True}


@pytest.mark.parametrize(
    "value",
    [
        # X5 of the security review.
        pytest.param({"amqp://me:s3cret@host": 1}, id="url-as-key"),
        pytest.param({"a": {"https://s3cret@host": {"b": 1}}}, id="url-as-nested-key"),
        pytest.param(["Authorization", "Bearer s3cret"], id="pair-in-a-list"),
        pytest.param([["authorization:", "s3cret"], ["accept", "*"]], id="pairs-in-a-list"),
        pytest.param({"Name": "DB_PASSWORD", "Value": "s3cret"}, id="capitalized-pair"),
        pytest.param({"KEY": "apiToken", "VALUE": ["s3cret"]}, id="upper-case-pair"),
        pytest.param("Bearer s3cret", id="bare-bearer"),
        pytest.param("sent with bearer s3cret.", id="bearer-in-a-sentence"),
        pytest.param("Basic czNjcmV0czNjcmV0s3cret", id="bare-basic"),
        pytest.param(PEM, id="pem"),
        pytest.param(f"cert {PEM[:50]}", id="pem-without-end"),
        pytest.param({"Cookie": "a=s3cret; b=s3cret"}, id="cookie"),
        pytest.param("Cookie: a=s3cret; b=s3cret", id="cookie-line"),
        pytest.param("<a><password>s3cret</password></a>", id="xml"),
        pytest.param('<x:apiToken id="1">s3cret</x:apiToken>', id="xml-namespace"),
        pytest.param("<credentials><user>s3cret</user></credentials>", id="xml-nested"),
        pytest.param(JWT, id="jwt"),
        pytest.param(f"got {JWT}, stopped", id="jwt-in-a-sentence"),
        pytest.param({"environment": {"A": "s3cret"}}, id="environment"),
        pytest.param("environment: {A: s3cret}", id="environment-in-text"),
        # Other ways to name a secret.
        pytest.param({"name": "DB_PASSWORD", "value": "s3cret"}, id="pair"),
        pytest.param(["mysql", "--password", "s3cret", "db"], id="option"),
        pytest.param(["run it with {'env_vars': {'A': 's3cret'}}"], id="python-dict"),
        pytest.param(['log: {"secret": {"A": "s3cret"}}'], id="json-in-a-sentence"),
        pytest.param(["p\0a\0s\0s\0w\0o\0r\0d\0=\0s\0003\0c\0r\0e\0t\0"], id="nul"),
        pytest.param("env_vars:\n  A: s3cret\n  B:\n    C: s3cret", id="yaml-block"),
        pytest.param("private_key: |\n  BEGIN\n  s3cret", id="yaml-text"),
        pytest.param("password: correct horse s3cret", id="words"),
        pytest.param("Authorization: Digest username=me, response=s3cret", id="digest"),
    ],
)
def test_every_way_to_carry_a_secret_hides_it(value: object) -> None:
    for shown in (masked(value), masked({"a": [value]}), masked({"a": json.dumps(value)})):
        assert "s3cret" not in json.dumps(shown)
        assert MASK in json.dumps(shown)


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
        ("mysql --password s3cret db", "mysql --password *** db"),
        ("curl -H 'Authorization: Bearer s3cret' host", "curl -H 'Authorization: ***' host"),
        ("https://host/?api_key=s3cret&page=2", "https://host/?api_key=***&page=2"),
        ('{"token": "s3 cret", "a": 1', '{"token": ***, "a": 1'),
        (r"{\"token\": \"s3 cret\"", r"{\"token\": ***"),
        ("{'password': b's3 cret', 'a': 1}", "{'password': ***, 'a': 1}"),
        ("'password' => 's3 cret', 'a' => 1", "'password' => ***, 'a' => 1"),
        ("{'name': 'DB_PASSWORD', 'value': 's3 cret'}", "{'name': 'DB_PASSWORD', 'value': ***}"),
        ("a routing_keys: [execution.dispatch]", "a routing_keys: [execution.dispatch]"),
        ("routing_key=execution.dispatch", "routing_key=execution.dispatch"),
        ("PWD=s3cret; ls", "PWD=***; ls"),
        ("<queue>q.7</queue><pin>1</pin>", "<queue>q.7</queue><pin>1</pin>"),
        ("bearer of news", "bearer *** news"),
    ],
)
def test_secrets_within_a_text_are_hidden(text: str, shown: str) -> None:
    assert masked_text(text) == shown
    assert masked({"command": [text]}) == {"command": [shown]}


@pytest.mark.parametrize("name", ["secret", "env_vars", "clientSecrets", "env"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_json_within_a_string_is_masked_as_json(name: str, times: int) -> None:
    nested: object = {name: {"A": "s3cret"}, "after": [7]}
    for _ in range(times):
        nested = {"nested": json.dumps(nested)}
    shown = masked(nested)
    for _ in range(times):
        assert isinstance(shown, dict)
        shown = json.loads(shown["nested"])
    assert shown == {name: MASK, "after": [7]}


def test_a_json_body_is_shown_indented_and_masked() -> None:
    body = json.dumps({"execution_id": 7, "config": {"password": "s3cret", "größe": 1}})
    for encoding in ("utf-8", "utf-8-sig"):
        shown = masked_body(body.encode(encoding), is_text_shown=False)
        assert shown.text is not None
        assert json.loads(shown.text) == {"execution_id": 7, "config": {"password": MASK, "größe": 1}}
        assert (shown.size, shown.is_cut, shown.is_json) == (len(body.encode(encoding)), False, True)
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
        b"env_vars: {A: s3cret}",
        b"{env_vars={A=s3cret}}",
        b"Task(env_vars=dict(A='s3cret'))",
        b"map[env_vars:map[A:s3cret]]",
        b'{"nested": "{\\"secret\\": {\\"A\\": \\"s3cret',
        b'{"nested": "{\\"a\\": \\"{\\\\\\"token\\\\\\": \\\\\\"s3cret',
        b'{"script": "env_vars:\\n  A: s3cret',
        b'["--password", "s3cret',
        b"env:\n- name: A\n  value: s3cret\n",
        b"'api_tokens':\r\n- s3cret\r\n- s3cret\r\n",
    ],
)
def test_a_body_that_is_not_json_is_shown_only_on_demand_and_masked(body: bytes) -> None:
    hidden, shown = masked_body(body, is_text_shown=False), masked_body(body, is_text_shown=True)
    assert (hidden.text, hidden.is_json, hidden.size) == (None, False, len(body))
    assert shown.text is not None
    assert "s3cret" not in shown.text
    assert MASK in shown.text
    assert not shown.is_json


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"password": "s3cret"}).encode("utf-16"),
        json.dumps({"password": "s3cret"}).encode("utf-16-le"),
        b'\xff{"password": "s3cret"}',
    ],
)
def test_a_body_that_is_not_text_is_never_shown(body: bytes) -> None:
    shown = masked_body(body, is_text_shown=True)
    assert (shown.text, shown.size, shown.is_cut, shown.is_json) == (None, len(body), False, False)


def test_a_long_body_is_cut_at_a_character() -> None:
    body = json.dumps(["ä" * 20_000], ensure_ascii=False).encode()
    shown = masked_body(body, is_text_shown=False, limit=100)
    assert shown.is_cut
    assert shown.text is not None
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
def test_no_body_raises(body: bytes) -> None:
    (masked_body(body, is_text_shown=True).text or "").encode()


@pytest.mark.parametrize(
    "part",
    [
        *("a", "key", '"key', "key=", "://", "://a:", "@", "://@", '{"key":', "\\", "' ", '"', "-", "--key "),
        *("key:\n", " ", "\n", "key \\", '"{', "[", '"[', "name=key ", "'key", "routing_key:[", "env", "\\'"),
        *(" key:\n", "<key>", "<key ", "eyJ", "eyJ.", "-----BEGIN ", "bearer ", "basic ", "Key: ", "<a:key"),
    ],
)
def test_the_time_of_masking_grows_with_the_length_only(part: str) -> None:
    """A pattern of quadratic cost would take many minutes: the test's own time limit is the measure."""
    assert masked_text(part * (200_000 // len(part))) is not None


@given(JSON)
def test_any_masked_json_can_be_encoded(value: object) -> None:
    json.dumps(masked(value), ensure_ascii=False).encode()
    (masked_body(json.dumps(value).encode(), is_text_shown=False).text or "").encode()


@given(st.text(), st.text(alphabet="abc123XYZ", min_size=8))
def test_no_value_of_a_secret_name_survives_anywhere(around: str, secret: str) -> None:
    shown = json.dumps(masked({"x": [{around + "password" + around: {around: secret}}]}))
    assert secret not in shown.replace(around, "") or secret in around


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@host:5432/db", "postgresql://u:***@host:5432/db"),
        ("amqp://:p@host", "amqp://:***@host"),
        ("amqp://u@host", "amqp://u@host"),
        ("amqp://host", "amqp://host"),
        ("postgresql://u:p@ss/w:rd@host/db", "postgresql://u:***@host/db"),
        (
            "postgresql://host/db?user=u&password=p&sslmode=require",
            "postgresql://host/db?user=u&password=***&sslmode=require",
        ),
        ("postgresql://host/db?sslpassword=p", "postgresql://host/db?sslpassword=***"),
        ("host=h user=u password=p dbname=d", "host=h user=u password=*** dbname=d"),
        ("host=h password = 'p w\\' x' dbname=d", "host=h password = *** dbname=d"),
        ("postgresql://a:p@h1:1,h2:2/db", "postgresql://a:***@h1:1,h2:2/db"),
    ],
)
def test_a_url_of_the_settings_keeps_its_user_and_host(url: str, shown: str) -> None:
    assert masked_url(url) == shown


@given(middle=st.text())
@example(middle="://")
@example(middle="@")
@example(middle="?password=")
def test_no_part_of_an_odd_password_survives(middle: str) -> None:
    shown = masked_url(f"postgresql://user:S3CRET{middle}S3CRET@host:5432/db")
    assert "S3CRET" not in shown
    assert shown.startswith("postgresql://user:***@")
    assert shown.endswith("host:5432/db")


@given(words=st.lists(st.sampled_from(["lost", "to", "(again)", "'quoted'", "a@b"]), max_size=4))
def test_each_url_in_a_sentence_is_masked_on_its_own(words: list[str]) -> None:
    around = " ".join(words)
    shown = without_passwords(
        f"{around} amqp://a:S3CRET@h1,amqp://b:S3CRET@h2 'http://c:S3CRET@h3/x' {around}"
    )
    assert shown == f"{around} amqp://a:***@h1,amqp://b:***@h2 'http://c:***@h3/x' {around}"
