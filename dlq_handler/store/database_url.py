"""Read a PostgreSQL URL as libpq would, for a driver that understands only part of it.

asyncpg hands every parameter it does not know to the server as a setting, and the server then refuses the
connection. So what asyncpg cannot take is taken out here: obeyed where we can, ignored where it changes
nothing, refused where ignoring it would weaken what was asked for. No error quotes the URL.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

# Asked for with these values, another connection than ours was meant.
_REFUSED_VALUES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "channel_binding": frozenset({"require"}),
        "gssencmode": frozenset({"require"}),
        "sslcertmode": frozenset({"require"}),
    }
)
_REFUSED = frozenset(
    {"hostaddr", "require_auth", "requirepeer", "replication", "scram_client_key", "oauth_issuer"}
)
_IGNORED = frozenset(
    {
        "channel_binding",
        "client_encoding",
        "gssdelegation",
        "gssencmode",
        "load_balance_hosts",
        "max_protocol_version",
        "min_protocol_version",
        "sslcertmode",
        "sslcompression",
        "sslsni",
    }
)
_KEEPALIVES = frozenset(
    {"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUrl:
    """What the driver gets, and what we do ourselves."""

    dsn: str = field(repr=False)
    application_name: str
    connect_timeout_seconds: float | None
    """None: the URL does not say."""
    keepalive: Mapping[str, int]
    """libpq's keepalive parameters, by libpq's names."""


def read_database_url(url: str, *, application_name: str) -> DatabaseUrl:
    """Raises ValueError, in words, for what cannot be obeyed."""
    parts = urlsplit(url)
    scheme = parts.scheme.partition("+")[0]
    if scheme not in ("postgresql", "postgres"):
        raise ValueError("the database URL must begin with postgresql://")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, value in parameters.items():
        if name in _REFUSED or value in _REFUSED_VALUES.get(name, ()):
            raise ValueError(
                f"the database URL asks for {name}={value}, which the driver cannot do; remove it"
            )
    fallback_name = parameters.pop("fallback_application_name", application_name)
    seconds = _number(parameters, "connect_timeout")
    return DatabaseUrl(
        application_name=parameters.pop("application_name", "") or fallback_name,
        # libpq: zero, negative or absent means no limit of its own.
        connect_timeout_seconds=float(seconds) if seconds is not None and seconds > 0 else None,
        keepalive={
            name: number for name in sorted(_KEEPALIVES) if (number := _number(parameters, name)) is not None
        },
        dsn=urlunsplit(
            (
                scheme,
                parts.netloc,
                parts.path,
                urlencode({name: value for name, value in parameters.items() if name not in _IGNORED}),
                "",
            )
        ),
    )


def _number(parameters: dict[str, str], name: str) -> int | None:
    text = parameters.pop(name, None)
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"the database URL has a {name} that is not a whole number") from None
