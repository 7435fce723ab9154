"""No password leaves: neither by redaction of URLs and text, nor by the repr of anything that holds one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlq_handler.options import SecretUrl
from dlq_handler.redaction import is_secret_name, redact_text, redact_url
from dlq_handler.settings import Settings


@pytest.mark.parametrize(
    ("given_url", "shown"),
    [
        ("postgresql://u:p@host:5432/db", "postgresql://u:***@host:5432/db"),
        ("amqp://u:p@host/%2f", "amqp://u:***@host/%2f"),
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
def test_user_and_host_stay_and_the_password_goes(given_url: str, shown: str) -> None:
    assert redact_url(given_url) == shown


@given(middle=st.text())
@example(middle="://")
@example(middle="@")
@example(middle="?password=")
def test_no_part_of_a_password_survives_however_odd_it_is(middle: str) -> None:
    secret = SecretUrl(f"postgresql://user:S3CRET{middle}S3CRET@host:5432/db")

    assert "S3CRET" not in f"{secret!r} {secret} {secret.redacted()}"
    assert secret.redacted().startswith("postgresql://user:***@")
    assert secret.redacted().endswith("host:5432/db")


@given(words=st.lists(st.sampled_from(["lost", "to", "(again)", "'quoted'", "a@b"]), max_size=4))
def test_every_url_in_a_sentence_is_redacted_on_its_own(words: list[str]) -> None:
    before = " ".join(words)

    shown = redact_text(f"{before} amqp://a:S3CRET@h1,amqp://b:S3CRET@h2 'http://c:S3CRET@h3/x' {before}")

    assert shown == f"{before} amqp://a:***@h1,amqp://b:***@h2 'http://c:***@h3/x' {before}"


def test_settings_show_no_password_in_any_form() -> None:
    held = Settings.model_validate(
        {
            "database": {"url": "postgresql://u:S3CRET@h/d"},
            "message_queue": {"url": "amqp://u:S3CRET@h"},
            "dlq_handler": {
                "broker": {"urls": ["amqp://u:S3CRET@h"], "management_url": "http://u:S3CRET@h"},
            },
        }
    )

    assert "S3CRET" not in f"{held!r} {held} {held.model_dump()} {held.model_dump_json()}"
    assert held.database.url.get_secret_value() == "postgresql://u:S3CRET@h/d"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [("password", True), ("db_password", True), ("Token", True), ("passed", False), ("url", False)],
)
def test_a_name_can_be_enough_to_hide_a_value(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret
