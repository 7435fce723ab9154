"""No password leaves the settings: neither by the text, nor by the repr, nor by the JSON of anything that holds one."""

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
