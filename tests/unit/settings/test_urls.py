"""URLs: no password leaves the settings in any form; the management API has the credentials of the broker."""

import pytest

from dlq_handler.broker.options import management_url_beside
from dlq_handler.options import SecretUrl
from dlq_handler.settings import Settings


def test_a_secret_url_shows_user_and_host() -> None:
    secret = SecretUrl("postgresql://user:S3CRET@host:5432/db")
    assert secret.redacted() == str(secret) == "postgresql://user:***@host:5432/db"
    assert "S3CRET" not in repr(secret)


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


BROKER = SecretUrl("amqp://attune:s%40cret@rabbitmq:5672/%2f")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, "http://attune:s%40cret@rabbitmq:15672"),
        ("http://elsewhere:8080/rabbit", "http://attune:s%40cret@elsewhere:8080/rabbit"),
        ("https://other:word@elsewhere", "https://other:word@elsewhere"),
    ],
)
def test_without_credentials_of_its_own_it_gets_the_brokers(given: str | None, wanted: str) -> None:
    url = management_url_beside(BROKER, None if given is None else SecretUrl(given))
    assert url.get_secret_value() == wanted


def test_a_broker_without_credentials_is_asked_as_guest() -> None:
    url = management_url_beside(SecretUrl("amqp://h"), None)
    assert url.get_secret_value() == "http://guest:guest@h:15672"
