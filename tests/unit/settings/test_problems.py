"""Invalid values are reported at once, with place, key, given and allowed value; contradictions too."""

import json
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_handler.settings import ConfigError, Loaded, load
from dlq_handler.settings.keys import Key, known_keys


def loaded_from(text: str, **variables: str) -> Loaded:
    Path("config.yaml").write_text(dedent(text))
    return load(None, variables)


def problems_of(text: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded_from(text, **variables)
    return [str(problem) for problem in caught.value.problems]


def test_all_problems_are_reported_at_once_each_with_its_place() -> None:
    problems = problems_of(
        """\
        database:
          url: mysql://u:S3CRET@h/d
        dlq_handler:
          http:
            port: 70000
            prot: 1
          log: {level: loud}
          prefetch: yes
          1: odd
          broker:
            urls: [amqp://h, "http://u:S3CRET@h"]
            pasword: S3CRET
          outbox: {lease_seconds: 5}
        """,
        ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT="soon",
    )

    assert sorted(
        problem.partition(" ")[0] + problem.partition(" ")[2][:44] for problem in problems
    ) == sorted(
        [
            "config.yaml:2:database.url cannot be used; wanted a URL su",
            "config.yaml:5:dlq_handler.http.port is 70000; wanted a who",
            "config.yaml:6:dlq_handler.http.prot is not a key of dlq-ha",
            "config.yaml:7:dlq_handler.log.level is 'loud'; wanted one ",
            "config.yaml:8:dlq_handler.prefetch is True; wanted a whole",
            "config.yaml:9:dlq_handler.1 is not a key of dlq-handler; w",
            "config.yaml:11:dlq_handler.broker.urls (item 1) cannot be u",
            "config.yaml:12:dlq_handler.broker.pasword is not a key of d",
            "config.yaml:13:dlq_handler.outbox.lease_seconds is 5 s with",
            "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT:executor.scheduled_timeout is 'soon'; wanted",
        ]
    )
    assert "S3CRET" not in "".join(problems)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("batch_size: 1", "dlq_handler.batch.size"),
        ("batch: {sizes: 1}", "dlq_handler.batch.size"),
        ("intakes: {queue: a}", "dlq_handler.intake"),
        ("http: {listen_port: 1}", "dlq_handler.http.port"),
        ("broker: {url: amqp://h}", "dlq_handler.broker.urls"),
        ("database: {url: postgresql://h/d}", "did you mean database.url?"),
        ("zebra: 1", "remove it"),
    ],
)
def test_a_wrong_key_at_any_depth_is_refused_with_a_suggestion(text: str, meant: str) -> None:
    (problem,) = problems_of(f"dlq_handler: {{{text}}}")

    assert meant in problem.rpartition(";")[2]


@pytest.mark.parametrize(
    "key", [key for key in known_keys().values() if "maximum" in str(key.schema)], ids=lambda key: key.name
)
def test_no_number_may_leave_its_range(key: Key) -> None:
    schema = key.schema.get("anyOf", [key.schema])[0]
    below = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1) - 1

    for number in (
        below,
        schema["maximum"] + 1,
        "x",
        "",
        True,
        None if "anyOf" not in key.schema else "y",
        ".nan",
    ):
        value = "null" if number is None else repr(number) if isinstance(number, str) else str(number).lower()
        nested = value
        for part in reversed(key.path):
            nested = f"{{{part}: {nested}}}"
        (problem,) = problems_of(nested)
        assert problem.startswith(f"config.yaml:1: {key.name} is ")
        assert key.wanted in problem


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "amqp://",
        "amqp://:5672",
        "amqp://u:S3CRET@",
        "amqp://u:S3CRET@h:0",
        "amqp://u:S3CRET@h:99999",
        "amqp://u:S3CRET@h:port",
        "amqp://u:S3/CRET@h",
        "amqp://u:1/S3CRET@h",
        "amqp://u:S3#CRET@h",
        "amqp://u:S3CRET@h1,h2",
        "amqp://u:S3CRET @h",
        "http://u:S3CRET@h",
        "amqp://[::1",
        "host=h password=S3CRET",
    ],
)
def test_a_broker_url_that_cannot_work_is_refused_without_being_shown(url: str) -> None:
    (problem,) = problems_of(f"message_queue: {{url: '{url}'}}")

    assert problem.startswith("config.yaml:1: message_queue.url cannot be used; wanted a URL such as amqp://")
    assert "S3" not in problem


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{prefetch: 999}", "dlq_handler.prefetch is 999 with batch.size 500; wanted at least 1000"),
        (
            "{outbox: {lease_seconds: 19.9}}",
            "dlq_handler.outbox.lease_seconds is 19.9 s with broker.publish_timeout_seconds 10; wanted at least 20 s",
        ),
        ("{database: {lock_timeout_ms: 30000}}", "dlq_handler.database.lock_timeout_ms is 30000"),
        (
            "{intake: {buffer_bytes: 1048576, stored_body_bytes: 1048577}}",
            "dlq_handler.intake.buffer_bytes is 1048576",
        ),
        ("{schema: attune}", "dlq_handler.schema is 'attune', which other programs use too"),
        ("{schema: public}", "dlq_handler.schema is 'public', which other programs use too"),
        ("{intake: {queue: worker.7.executions}}", "dlq_handler.intake.queue is 'worker.7.executions'"),
        (
            "{shadow: {enabled: true, queue: attune.dlx.queue}}",
            "dlq_handler.shadow.queue is 'attune.dlx.queue', which holds the dead letters themselves",
        ),
        (
            "{intake: {queue: mine}, shadow: {enabled: true, queue: mine}}",
            "dlq_handler.shadow.queue is 'mine'",
        ),
        (
            "{shadow: {enabled: true, queue: worker.7.executions}}",
            "dlq_handler.shadow.queue is 'worker.7.executions'",
        ),
        ("{worker: {unavailable_after_seconds: 30}}", "dlq_handler.worker.unavailable_after_seconds is 30"),
        (
            "{monitor: {fail_unscheduled: true, republish_requests: false}}",
            "dlq_handler.monitor.fail_unscheduled is true with republish_requests false",
        ),
        (
            "{lifecycle: {orphans: {enabled: true}}}",
            "dlq_handler.lifecycle.orphans.enabled is true with lifecycle.enabled false",
        ),
        ("{broker: {urls: [amqp://a/x, amqp://b/y]}}", "dlq_handler.broker.urls names different vhosts"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(section: str, message: str) -> None:
    (problem,) = problems_of(f"dlq_handler: {section}")

    assert problem.startswith(f"config.yaml:1: {message}")


def test_a_lease_of_two_publish_timeouts_is_enough() -> None:
    assert (
        loaded_from("dlq_handler: {outbox: {lease_seconds: 20}}").settings.dlq_handler.outbox.lease_seconds
        == 20
    )


def test_a_contradiction_with_a_default_names_the_key_that_was_given() -> None:
    (problem,) = problems_of("", ATTUNE__DLQ_HANDLER__BROKER__PUBLISH_TIMEOUT_SECONDS="60")

    assert problem.startswith(
        "ATTUNE__DLQ_HANDLER__BROKER__PUBLISH_TIMEOUT_SECONDS: dlq_handler.outbox.lease_seconds"
    )


def test_a_wrong_key_is_not_blamed_twice() -> None:
    (problem,) = problems_of("dlq_handler: {prefetch: 2, batch: {size: 0}}")

    assert "dlq_handler.batch.size is 0" in problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message_queue: {rabbitmq: {dead_letter: {enabled: false}}}", "dead_letter.enabled is false"),
        ("message_queue: {rabbitmq: {dead_letter: {ttl_ms: 2592000001}}}", "keeps resolved records longer"),
        ("dlq_handler: {worker: {unavailable_after_seconds: 75}}", "allows only 2.5 heartbeats"),
        ("executor: {scheduled_timeout: 329}", "is 329 s, raised to 330 s"),
        (
            "dlq_handler: {brake: {max_decisions_per_minute: 499}}",
            "max_decisions_per_minute is 499, less than dlq_handler.batch.size (500)",
        ),
        (
            "dlq_handlers: {}",
            "config.yaml:1: dlq_handlers is ignored: not a known key; did you mean dlq_handler?",
        ),
        (
            "message_queue: {url: 'amqps://u:S3CRET@h/v?no_verify_ssl=1'}",
            "message_queue.url sets no_verify_ssl: the broker's certificate is not checked",
        ),
        (
            "dlq_handler: {broker: {urls: ['amqps://h/v', 'amqps://u:S3CRET@i/v?cafile=x&no_verify_ssl=yes']}}",
            "dlq_handler.broker.urls sets no_verify_ssl",
        ),
        ("worker: {heartbeat_intervall: 1}", "did you mean worker.heartbeat_interval?"),
    ],
)
def test_what_surprises_is_a_warning(text: str, message: str) -> None:
    warnings = loaded_from(text).warnings
    assert any(message in warning for warning in warnings)
    assert "S3CRET" not in str(warnings)


def test_defaults_have_no_warning() -> None:
    assert load(None, {}).warnings == ()


@pytest.mark.parametrize("limit", [0, 500])
def test_a_limit_of_the_brake_that_is_off_or_fits_a_batch_is_no_warning(limit: int) -> None:
    assert loaded_from(f"dlq_handler: {{brake: {{max_decisions_per_minute: {limit}}}}}").warnings == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("executor: {scheduled_timeout: 10}", 330),
        ("executor: {scheduled_timeout: 900}", 900),
        (
            "message_queue: {rabbitmq: {worker_queue_ttl_ms: 1500}}\ndlq_handler: {grace: {after_ttl_seconds: 2}}",
            300,
        ),
    ],
)
def test_no_deadline_is_shorter_than_ttl_and_grace(text: str, seconds: float) -> None:
    assert loaded_from(text).settings.deadline_seconds == seconds


def test_empty_keys_follow_from_others() -> None:
    settings = loaded_from(
        """\
        worker: {heartbeat_interval: 60}
        message_queue: {url: "amqps://u:p%40@[::1]:5671/v"}
        dlq_handler: {batch: {size: 10}}
        """
    ).settings

    assert settings.prefetch == 30
    assert settings.worker_unavailable_after_seconds == 180
    assert settings.broker_urls == (settings.message_queue.url,)
    assert settings.management_url.get_secret_value() == "https://u:p%40@[::1]:15671"


@pytest.mark.parametrize(("interval", "seconds"), [(10, 90), (30, 90), (31, 93)])
def test_a_worker_is_unavailable_after_three_heartbeats_but_not_within_90_seconds(
    interval: int, seconds: float
) -> None:
    settings = loaded_from(f"worker: {{heartbeat_interval: {interval}}}").settings

    assert settings.worker_unavailable_after_seconds == seconds


def test_keys_that_are_given_are_taken() -> None:
    settings = loaded_from(
        """\
        dlq_handler:
          prefetch: 5000
          worker: {unavailable_after_seconds: 200}
          broker: {urls: [amqp://a, amqp://b], management_url: "http://u:p@c"}
        """
    ).settings

    assert (settings.prefetch, settings.worker_unavailable_after_seconds) == (5000, 200)
    assert [url.get_secret_value() for url in settings.broker_urls] == ["amqp://a", "amqp://b"]
    assert settings.management_url.get_secret_value() == "http://u:p@c"


@settings(max_examples=40)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet="ab:/@ {}", max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["http", "url", "x"]), inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_no_value_makes_loading_fail_in_an_unforeseen_way(value: object) -> None:
    for name in ("dlq_handler", "database", "message_queue"):
        for text in (
            json.dumps({name: value}),
            json.dumps({name: {"http": value, "url": value, "broker": {"urls": value}}}),
        ):
            Path("config.yaml").write_text(text)
            with suppress(ConfigError):
                load(None, {})
