"""Settings of the connection to RabbitMQ, and the checks of its URLs."""

from typing import Annotated
from urllib.parse import parse_qs, urlsplit, urlunsplit

from pydantic import AfterValidator, Field
from pydantic_settings import NoDecode

from dlq_handler.options import SECRET_URL, Listed, OwnSection, Seconds, SecretUrl, with_one_host

# By it the consumers of replicas differ from those of other services.
CONSUMER_TAG_PREFIX = "dlq-handler."


def _amqp(url: SecretUrl) -> SecretUrl:
    return with_one_host(url, ("amqp", "amqps"), "amqp://user:password@host:5672/%2f")


def _http(url: SecretUrl) -> SecretUrl:
    return with_one_host(url, ("http", "https"), "http://user:password@host:15672")


AmqpUrl = Annotated[SecretUrl, AfterValidator(_amqp), SECRET_URL]
HttpUrl = Annotated[SecretUrl, AfterValidator(_http), SECRET_URL]


class BrokerOptions(OwnSection):
    """Connections to RabbitMQ."""

    # NoDecode: a variable may hold a plain comma list, which pydantic-settings would refuse as broken JSON.
    urls: Annotated[tuple[AmqpUrl, ...], NoDecode, Listed] = ()
    """Brokers of one cluster, tried in turn when one is lost; empty means `message_queue.url` alone. In a variable: a
    JSON array or a comma list."""
    management_url: HttpUrl | None = None
    """RabbitMQ's management API; null means the first broker's host and credentials on port 15672 (15671 and https for
    amqps)."""
    heartbeat_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """Interval of AMQP heartbeats, in seconds. A half-open connection is detected after about three."""
    connect_timeout_seconds: Annotated[Seconds, Field(ge=0.1, le=600)] = 5
    """Maximum duration of one attempt to connect, in seconds. Then the next broker is tried."""
    publish_timeout_seconds: Annotated[Seconds, Field(ge=0.1, le=3600)] = 10
    """Maximum time until the broker confirms a completion event, in seconds. Later it counts as not published and is
    published again."""


def vhost_of(amqp_url: SecretUrl) -> str:
    """Still percent-encoded. No path and a bare `/` mean the default vhost, which `%2f` spells out."""
    path = urlsplit(amqp_url.get_secret_value()).path.removeprefix("/")
    return path if path and path.lower() != "%2f" else "%2f"


def is_unverified(amqp_url: SecretUrl) -> bool:
    """As the client reads it: any value but 0 switches the check of the certificate off."""
    parts = urlsplit(amqp_url.get_secret_value())
    values = parse_qs(parts.query, keep_blank_values=True).get("no_verify_ssl", ["0"])
    return parts.scheme == "amqps" and values[0] != "0"


def management_url_beside(amqp_url: SecretUrl, given: SecretUrl | None = None) -> SecretUrl:
    """Where the management API is unless moved: same host and credentials, port 15672 (15671 with TLS).

    A given URL without credentials gets the broker's: it is the same user, and a request without any is refused.
    """
    parts = urlsplit(amqp_url.get_secret_value())
    # An AMQP URL without credentials means guest:guest to the client; HTTP has no such habit.
    userinfo = parts.netloc.rpartition("@")[0] or "guest:guest"
    if given is not None:
        api = urlsplit(given.get_secret_value())
        if "@" in api.netloc:
            return given
        return SecretUrl(urlunsplit(api._replace(netloc=f"{userinfo}@{api.netloc}")))
    scheme, port = ("https", 15671) if parts.scheme == "amqps" else ("http", 15672)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return SecretUrl(f"{scheme}://{userinfo}@{host}:{port}")
