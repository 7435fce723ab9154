"""Variables over files: names, secrets in files, what is ignored and what is refused."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_handler.settings import ConfigError, Settings, load
from dlq_handler.settings.keys import Key, known_keys

# Keys that do not take just any text.
IN_WORDS = {
    "dlq_handler.blueprints": '{"b": {"params": ["p"], "flow": [{"name": "q.{p}", "exchange": "e", "keys": ["k"]}]}}',
    "dlq_handler.ui.host": "localhost",
    "dlq_handler.ui.external_url": "https://dlq.example",
    "dlq_handler.ui.runbook_url": "https://docs.example/runbook.md",
    "dlq_handler.ui.tokens": json.dumps([{"name": "a", "role": "read", "token_file": "token"}]),
}
SCHEMES = {
    "database.url": "postgresql",
    "dlq_handler.broker.management_url": "http",
}
# A key that contradicts the defaults of others is accepted with these.
BESIDE = {"dlq_handler.lifecycle.orphans.enabled": {"ATTUNE__DLQ_HANDLER__LIFECYCLE__ENABLED": "true"}}
SECRETS = [key for key in known_keys().values() if key.is_secret]


@pytest.fixture(autouse=True)
def token(folder: Path) -> None:
    (folder / "token").write_text("0123456789abcdef\n")


def loaded_with(**variables: str) -> Settings:
    return load(None, variables).settings


def problems_with(**variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(None, variables)
    return [str(problem) for problem in caught.value.problems]


def another_value(key: Key) -> str:
    """A value that the key accepts and that is not its default."""
    if key.is_secret:
        return f"{SCHEMES.get(key.name, 'amqp')}://other/x"
    schema = key.schema.get("anyOf", [key.schema])[0]
    match schema:
        case {"enum": [*_, last]}:
            return str(last)
        case {"type": "boolean"}:
            return str(not key.default).lower()
        case {"type": "integer" | "number"}:
            return str(int(key.default) + 1) if isinstance(key.default, int | float) else "5000"
        case _:
            return IN_WORDS.get(key.name) or ("x_{id}_y" if "pattern" in key.name else "another")


@pytest.mark.parametrize("key", known_keys().values(), ids=lambda key: key.name)
def test_every_key_has_a_variable(key: Key) -> None:
    loaded = load(None, {key.variable: another_value(key), **BESIDE.get(key.name, {})})

    assert loaded.overrides[key.name] == key.variable
    assert loaded.origins[key.name].removesuffix(", raised") == key.variable
    assert key.value_in(loaded.settings) != key.default


def test_a_variable_beats_the_files_in_any_case_of_letters() -> None:
    Path("config.yaml").write_text("dlq_handler: {http: {port: 1, host: a}}")

    http = loaded_with(attune__Dlq_Handler__HTTP__port="2").dlq_handler.http

    assert (http.port, http.host) == (2, "a")


@pytest.mark.parametrize(
    "text", ["amqp://a,amqp://b", ' ["amqp://a", "amqp://b"] ', "amqp://a, amqp://b", "amqp://a\namqp://b\n"]
)
def test_a_list_is_json_or_has_commas_between_its_items(text: str) -> None:
    settings = loaded_with(ATTUNE__DLQ_HANDLER__BROKER__URLS=text)

    assert [url.get_secret_value() for url in settings.broker_urls] == ["amqp://a", "amqp://b"]


@pytest.mark.parametrize("key", SECRETS, ids=lambda key: key.name)
def test_a_secret_may_stand_in_a_file_and_is_stripped(key: Key) -> None:
    Path("secret").write_text(f"  {another_value(key)}\n")

    loaded = load(None, {f"{key.variable}_FILE": "secret"})

    assert key.value_in(loaded.settings) == key.value_in(
        load(None, {key.variable: another_value(key)}).settings
    )
    assert loaded.origins[key.name] == f"{key.variable}_FILE"


@pytest.mark.parametrize("key", SECRETS, ids=lambda key: key.name)
def test_a_secret_given_twice_is_refused(key: Key) -> None:
    Path("secret").write_text(another_value(key))

    (problem,) = problems_with(**{f"{key.variable}_FILE": "secret", key.variable: another_value(key)})

    assert f"{key.variable}_FILE" in problem
    assert "unset one" in problem


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_secret_file_that_cannot_be_used_is_named_with_its_variable(content: bytes | None) -> None:
    if content is not None:
        Path("secret").write_bytes(content)

    (problem,) = problems_with(ATTUNE__DATABASE__URL_FILE="secret")

    assert problem.startswith("ATTUNE__DATABASE__URL_FILE: database.url names 'secret'")


def test_an_empty_variable_counts_as_not_set_and_is_mentioned() -> None:
    loaded = load(None, {"ATTUNE__DATABASE__URL": "", "ATTUNE__DATABASE__URL_FILE": ""})

    assert loaded.origins["database.url"] == "default"
    assert sum("is empty and was ignored" in warning for warning in loaded.warnings) == 2


def test_null_empties_a_key_that_a_file_has_set() -> None:
    Path("config.yaml").write_text("dlq_handler: {prefetch: 5000, replica_name: a}")

    settings = loaded_with(ATTUNE__DLQ_HANDLER__PREFETCH="null")

    assert settings.dlq_handler.prefetch is None
    assert settings.dlq_handler.replica_name == "a"


def test_attunes_own_variables_are_ignored() -> None:
    loaded = load(
        None,
        {
            "ATTUNE__SECURITY__JWT_SECRET": "x",
            "ATTUNE_WORKER_NAME": "w",
            "ATTUNE_WORKER_RUNTIMES": "python",
            "ATTUNE__WORKER__NAME": "w",
            "ATTUNE__DATABASE__MAX_CONNECTIONS": "many",
            "ATTUNE__DATABASE": "not json",
            "ATTUNE__": "x",
            "DATABASE": "x",
            "DLQ_HANDLER__HTTP__PORT": "tcp://10.0.0.1:80",
        },
    )

    assert not loaded.overrides
    assert set(loaded.origins.values()) == {"default", "derived"}
    assert not [warning for warning in loaded.warnings if "ATTUNE_" in warning]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("ATTUNE__DLQ_HANLDER__HTTP__PORT", "ATTUNE__DLQ_HANDLER__HTTP__PORT"),
        ("ATTUNE__DLQHANDLER__HTTP__PROT", "ATTUNE__DLQ_HANDLER__HTTP__PORT"),
        ("ATTUNE_DLQ_HANDLER__HTTP__PORT", "ATTUNE__DLQ_HANDLER__HTTP__PORT"),
        ("ATTUNE__EXECUTOR__SCHEDULE_TIMEOUT", "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT"),
        ("ATTUNE__DATABSE__SCHEMA", "ATTUNE__DATABASE__SCHEMA"),
    ],
)
def test_a_slip_outside_our_section_is_a_warning_with_a_suggestion(variable: str, meant: str) -> None:
    assert any(
        variable in warning and f"did you mean {meant}?" in warning
        for warning in load(None, {variable: "1"}).warnings
    )


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("ATTUNE__DLQ_HANDLER__HTTP__PROT", "did you mean ATTUNE__DLQ_HANDLER__HTTP__PORT?"),
        ("ATTUNE__DLQ_HANDLER__LOG_LEVEL", "did you mean ATTUNE__DLQ_HANDLER__LOG__LEVEL?"),
        ("ATTUNE__DLQ_HANDLER__PORT", "did you mean ATTUNE__DLQ_HANDLER__HTTP__PORT?"),
        ("ATTUNE__DLQ_HANDLER__HTTP__PORT__X", "did you mean ATTUNE__DLQ_HANDLER__HTTP__PORT?"),
        ("ATTUNE__DLQ_HANDLER__HTTP__PORT_FILE", "did you mean ATTUNE__DLQ_HANDLER__HTTP__PORT?"),
        ("ATTUNE__DLQ_HANDLER__ZEBRA", "remove it"),
        ("ATTUNE__DLQ_HANDLER__", "remove it"),
        ("ATTUNE__DLQ_HANDLER__HTTP", "give its keys one by one"),
        ("ATTUNE__DLQ_HANDLER", "give its keys one by one"),
    ],
)
def test_a_variable_of_ours_that_names_no_key_is_refused(variable: str, suggestion: str) -> None:
    (problem,) = problems_with(**{variable: "S3CRET"})

    assert problem.startswith(f"{variable}: ")
    assert problem.endswith(suggestion)
    assert "S3CRET" not in problem


def test_two_spellings_of_one_variable_are_refused() -> None:
    (problem,) = problems_with(ATTUNE__DLQ_HANDLER__HTTP__PORT="1", ATTUNE__dlq_handler__http__port="2")

    assert "is also given by" in problem


@settings(max_examples=40)
@given(name=st.text(alphabet="ABC_dlq1é", max_size=30), value=st.text(max_size=20))
def test_no_variable_makes_loading_fail_in_an_unforeseen_way(name: str, value: str) -> None:
    for prefix in ("ATTUNE__", "ATTUNE__DLQ_HANDLER__", "ATTUNE_"):
        with suppress(ConfigError):
            load(None, {prefix + name: value})
