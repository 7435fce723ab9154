"""Which files are read, how they are merged, and what is said about one that cannot be used."""

from pathlib import Path

import pytest

from dlq_handler.settings import ConfigError, load


def write(name: str, text: str) -> Path:
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


def refusal(config: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(config, {})
    return str(caught.value)


def test_without_files_the_defaults_are_attunes() -> None:
    loaded = load(None, {})

    assert loaded.files == ()
    assert (
        loaded.settings.database.url.get_secret_value()
        == "postgresql://postgres:postgres@localhost:5432/attune"
    )
    assert loaded.settings.database.schema_name == "attune"
    assert loaded.settings.message_queue.url.get_secret_value() == "amqp://guest:guest@localhost:5672/%2f"
    assert loaded.settings.message_queue.rabbitmq.worker_queue_ttl_ms == 300_000
    assert loaded.settings.message_queue.rabbitmq.dead_letter.ttl_ms == 86_400_000


def test_a_schema_of_null_means_attunes_as_in_attune() -> None:
    write("config.yaml", "database: {schema: null}")
    assert load(None, {}).settings.database.schema_name == "attune"


def test_the_file_of_the_environment_is_merged_key_by_key_over_config_yaml() -> None:
    write(
        "config.yaml",
        "database: {schema: base}\ndlq_handler: {http: {host: a, port: 1}, log: {level: debug}}",
    )
    write("config.production.yaml", "dlq_handler: {http: {port: 2}}")
    write("config.development.yaml", "dlq_handler: {http: {port: 3}}")

    loaded = load(None, {"ATTUNE__ENVIRONMENT": "production"})

    assert loaded.files == (Path("config.yaml"), Path("config.production.yaml"))
    own = loaded.settings.dlq_handler
    assert (own.http.host, own.http.port, own.log.level) == ("a", 2, "debug")
    assert load(None, {}).settings.dlq_handler.http.port == 3


def test_an_empty_section_takes_nothing_away_from_the_file_below() -> None:
    write("config.yaml", "dlq_handler: {http: {port: 7}}")
    write("config.development.yaml", "dlq_handler:\n  # all commented out\ndatabase:\n")

    assert load(None, {}).settings.dlq_handler.http.port == 7


def test_a_named_file_is_the_only_one_and_beats_the_variable() -> None:
    write("config.yaml", "dlq_handler: {http: {port: 1}}")
    write("named.yaml", "dlq_handler: {batch: {size: 7}}")
    write("other.yaml", "dlq_handler: {batch: {size: 8}}")

    by_variable = load(None, {"ATTUNE_CONFIG": "named.yaml"})
    by_option = load(Path("other.yaml"), {"ATTUNE_CONFIG": "named.yaml"})

    assert by_variable.files == (Path("named.yaml"),)
    assert by_variable.settings.dlq_handler.http.port == 9464
    assert (by_variable.settings.dlq_handler.batch.size, by_option.settings.dlq_handler.batch.size) == (7, 8)


def test_what_is_attunes_alone_is_ignored_whatever_its_shape() -> None:
    config = write(
        "config.yaml",
        """
        security: {jwt_secret: x, dlq_handler: {nonsense: 1}}
        packs: [1, {a: b}]
        server: null
        7: seven
        worker: {heartbeat_interval: 5, taints: [a], port: true}
        database: {url: "postgresql://h/d", max_connections: many}
        message_queue: {exchange: attune, rabbitmq: {vhost: x, dead_letter: {more: 1}}}
        """,
    )

    loaded = load(config, {})

    assert loaded.settings.worker.heartbeat_interval == 5
    assert not [warning for warning in loaded.warnings if "did you mean" in warning]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: c: d\n", "bad.yaml:2:5 is not YAML"),
        ("- a list\n", "bad.yaml holds a single value or a list"),
        ("a: !unknown x\n", "bad.yaml:1:4 is not YAML"),
        ("a: 2024-99-99\n", "bad.yaml is not YAML"),
        ("a: 1\n---\nb: 2\n", "bad.yaml:2:1 is not YAML"),
        ("[" * 1000, "bad.yaml is not YAML"),
        ("a: \x00", "bad.yaml is not YAML"),
        ("dlq_handler: 5", "bad.yaml:1: dlq_handler is a single value or a list"),
        (
            "x: 1\nmessage_queue:\n  rabbitmq: [1]\n",
            "bad.yaml:3: message_queue.rabbitmq is a single value or a list",
        ),
        (
            "dlq_handler:\n  http: {port: 1}\n  http: {host: a}\n",
            "bad.yaml:3: dlq_handler.http is given twice, first at bad.yaml:2",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(text: str, message: str) -> None:
    assert message in refusal(write("bad.yaml", text))


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "dlq_handler:\n"])
def test_an_empty_file_says_nothing(text: str) -> None:
    assert set(load(write("config.yaml", text), {}).origins.values()) == {"default", "derived"}


def test_a_file_that_is_not_text_is_refused() -> None:
    Path("bad.yaml").write_bytes(b"a: \xff\n")

    assert "bad.yaml is not UTF-8" in refusal(Path("bad.yaml"))


def test_a_named_file_that_is_missing_or_a_folder_is_refused(folder: Path) -> None:
    (folder / "config.yaml").mkdir()  # what Docker makes of a mount whose source is missing

    assert "nowhere.yaml does not exist" in refusal(Path("nowhere.yaml"))
    with pytest.raises(ConfigError, match=r"config\.yaml is not a file"):
        load(None, {})


def test_a_syntax_error_does_not_quote_what_may_be_a_password() -> None:
    assert "S3CRET" not in refusal(write("bad.yaml", "password: *S3CRET\n"))


def test_keys_that_come_through_an_anchor_count_and_are_checked() -> None:
    good = write("good.yaml", "x: &x {port: 5}\ndlq_handler: {http: {<<: *x, host: a}}")
    bad = write("bad.yaml", "x: &x {prot: 5}\ndlq_handler: {http: {<<: *x, host: a}}")
    endless = write("endless.yaml", "dlq_handler: &x\n  http: *x\n")

    assert load(good, {}).settings.dlq_handler.http.port == 5
    assert "dlq_handler.http.prot is not a key" in refusal(bad)
    assert "dlq_handler.http.http is not a key" in refusal(endless)
