"""Where the management API is, and as whom we ask it."""

import pytest

from dlq_handler.broker.options import management_url_beside
from dlq_handler.options import SecretUrl

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
