"""URLs that carry passwords: kept secret, shown redacted, checked for what the drivers need.

`repr`, `str` and JSON of a `SecretUrl` never hold the password; `get_secret_value()` is the only way to it.
The checks raise `ValueError` with what was wanted, and never quote the URL.
"""

from typing import Annotated
from urllib.parse import SplitResult, parse_qs, urlsplit, urlunsplit

from pydantic import AfterValidator, Secret

from dlq_handler.database.url import read_database_url
from dlq_handler.options import in_words
from dlq_handler.redaction import redact_url


class SecretUrl(Secret[str]):
    """A URL with credentials in it. `redacted()` is safe to print."""

    def _display(self) -> str:
        return self.redacted()

    def redacted(self) -> str:
        return redact_url(self.get_secret_value())


def _split(url: SecretUrl, schemes: tuple[str, ...], example: str) -> SplitResult:
    wanted = f"a URL such as {example}"
    text = url.get_secret_value()
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError(f"{wanted}, without blanks or line breaks")
    try:
        parts = urlsplit(text)
        for host in _hosts(parts):
            if urlsplit(f"//{host}").port == 0:
                raise ValueError
    except ValueError:
        raise ValueError(
            f"{wanted}, with a port from 1 to 65535 and special characters percent-encoded"
        ) from None
    if parts.scheme not in schemes:
        raise ValueError(f"{wanted}; the scheme is {' or '.join(schemes)}")
    if "@" in parts.path or parts.fragment:
        # An unescaped `/` or `#` in the password ends the host part early: we would talk to a host that
        # nobody named.
        raise ValueError(f"{wanted}, with special characters of user and password percent-encoded")
    return parts


def _one_host(url: SecretUrl, schemes: tuple[str, ...], example: str) -> SecretUrl:
    hosts = _hosts(_split(url, schemes, example))
    if len(hosts) != 1 or not urlsplit(f"//{hosts[0]}").hostname:
        raise ValueError(f"a URL such as {example}, with one host")
    return url


def _hosts(parts: SplitResult) -> list[str]:
    return parts.netloc.rpartition("@")[2].split(",")


def _amqp(url: SecretUrl) -> SecretUrl:
    return _one_host(url, ("amqp", "amqps"), "amqp://user:password@host:5672/%2f")


def _http(url: SecretUrl) -> SecretUrl:
    return _one_host(url, ("http", "https"), "http://user:password@host:15672")


def _postgres(url: SecretUrl) -> SecretUrl:
    # libpq allows several hosts, or none with `?host=/socket/folder`; the driver understands both.
    _split(url, ("postgresql", "postgres"), "postgresql://user:password@host:5432/attune")
    # What the driver would refuse is found out here, not after a minute of attempts to connect.
    read_database_url(url.get_secret_value(), application_name="")
    return url


_URL = in_words("a URL", writeOnly=True)
AmqpUrl = Annotated[SecretUrl, AfterValidator(_amqp), _URL]
HttpUrl = Annotated[SecretUrl, AfterValidator(_http), _URL]
PostgresUrl = Annotated[SecretUrl, AfterValidator(_postgres), _URL]


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
