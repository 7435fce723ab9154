"""Read a PostgreSQL URL as libpq would, for a driver that understands only part of it.

asyncpg hands every parameter it does not know to the server as a setting, and the server then refuses the
connection. So this module removes the parameters that asyncpg does not know: it applies them itself, ignores them where
they change nothing, or refuses them where ignoring them would weaken the connection. Promises that asyncpg can read
the result. No error quotes a value of the URL, nor a name that libpq does not know: with an unescaped `?`, a
password becomes parameters.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

_SWITCH = ("0", "1")
_TLS_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_STRICT_TLS = ("require", "verify-ca", "verify-full")

# The allowed values. libpq allows more: missing are those that the driver does not support, such as
# channel_binding=require, and read-only servers.
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "channel_binding": ("disable", "prefer"),
        "gssdelegation": _SWITCH,
        "gssencmode": ("disable", "prefer"),
        "gsslib": ("gssapi", "sspi"),
        "load_balance_hosts": ("disable", "random"),
        "ssl_max_protocol_version": _TLS_VERSIONS,
        "ssl_min_protocol_version": _TLS_VERSIONS,
        "sslcertmode": ("disable", "allow"),
        "sslcompression": _SWITCH,
        "sslmode": ("disable", "allow", "prefer", *_STRICT_TLS),
        "sslnegotiation": ("postgres", "direct"),
        "sslsni": _SWITCH,
        "target_session_attrs": ("any", "primary", "read-write"),
    }
)
_KEEPALIVES: Mapping[str, int] = MappingProxyType(
    # The largest that Linux takes: the connection would fail at one more.
    {
        "keepalives": 1,
        "keepalives_count": 127,
        "keepalives_idle": 32_767,
        "keepalives_interval": 32_767,
        "tcp_user_timeout": 2**31 - 1,
    }
)
_HANDED_ON = frozenset(
    {
        *("host", "port", "dbname", "database", "user", "password", "passfile", "service", "options"),
        *("sslmode", "sslnegotiation", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl"),
        *("ssl_min_protocol_version", "ssl_max_protocol_version"),
        *("target_session_attrs", "krbsrvname", "gsslib"),
    }
)
_IGNORED = frozenset(
    {
        *("channel_binding", "gssdelegation", "gssencmode", "sslcertmode", "sslcompression", "sslsni"),
        *("client_encoding", "load_balance_hosts", "max_protocol_version", "min_protocol_version"),
        "statement-cache-capacity",  # of the driver of the host's services, which share the URL
    }
)
_OBEYED_HERE = frozenset({"application_name", "fallback_application_name", "connect_timeout", *_KEEPALIVES})
_UNABLE = frozenset(
    {
        *(
            "hostaddr",
            "replication",
            "require_auth",
            "requirepeer",
            "servicefile",
            "sslcrldir",
            "sslkeylogfile",
        ),
        *("oauth_client_id", "oauth_client_secret", "oauth_issuer", "oauth_scope"),
        *("scram_client_key", "scram_server_key"),
    }
)
_BROKEN_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})|%00")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUrl:
    """The URL for the driver, and the parameters that dlq-handler applies itself."""

    dsn: str = field(repr=False)
    address: str
    """The server and database for messages, without user and password."""
    application_name: str
    connect_timeout_seconds: float | None
    """None: not set in the URL."""
    keepalive: Mapping[str, int]
    """libpq's keepalive parameters, by libpq's names."""


def read_database_url(url: str, *, application_name: str) -> DatabaseUrl:
    """Raises ValueError with what was wanted, in words, for what cannot be obeyed."""
    parts = _parts(url)
    scheme = parts.scheme.partition("+")[0]
    if scheme not in ("postgresql", "postgres"):
        raise ValueError("a database URL that begins with postgresql://")
    parameters = _parameters(parts.query)
    _check_address(parts, parameters)
    seconds = _number(parameters, "connect_timeout", least=-1, largest=2**31 - 1)
    return DatabaseUrl(
        address=parts.netloc.rpartition("@")[2] or parameters.get("host") or "the driver's own address",
        application_name=parameters.get("application_name")
        or parameters.get("fallback_application_name", application_name),
        # libpq: zero, negative or absent means no limit of its own.
        connect_timeout_seconds=float(seconds) if seconds is not None and seconds > 0 else None,
        keepalive={
            name: number
            for name, largest in _KEEPALIVES.items()
            if (number := _number(parameters, name, least=0, largest=largest)) is not None
        },
        dsn=urlunsplit(
            (
                scheme,
                parts.netloc,
                # A bare `/` names no database, but the driver would ignore `?dbname=` beside it.
                parts.path if parts.path != "/" else "",
                urlencode({name: value for name, value in parameters.items() if name in _HANDED_ON}),
                "",
            )
        ),
    )


def _parts(url: str) -> SplitResult:
    try:
        if _BROKEN_ESCAPE.search(url):
            raise ValueError
        unquote(url, errors="strict")
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(
            "a database URL with special characters percent-encoded, and % itself as %25"
        ) from None
    if parts.netloc.count("@") > 1:
        raise ValueError("a database URL with each @ in user and password percent-encoded as %40")
    return parts


def _parameters(query: str) -> dict[str, str]:
    if any("=" not in given for given in query.split("&") if given):
        raise ValueError("a database URL whose parameters are written as ?name=value&name=value")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in parameters.items():
        if name in _UNABLE:
            raise ValueError(f"a database URL without {name}, which the driver cannot obey")
        if name not in _HANDED_ON | _IGNORED | _OBEYED_HERE:
            raise ValueError("a database URL with no other parameters than those of libpq")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"a database URL whose {name} is one of {', '.join(_CHOICES[name])}")
    if parameters.get("sslrootcert") == "system":
        raise ValueError("a database URL whose sslrootcert is a file: the driver does not know `system`")
    if parameters.get("sslnegotiation") == "direct" and parameters.get("sslmode") not in _STRICT_TLS:
        raise ValueError(
            f"a database URL that has, beside sslnegotiation=direct, an sslmode of {', '.join(_STRICT_TLS)}"
        )
    return parameters


def _check_address(parts: SplitResult, parameters: Mapping[str, str]) -> None:
    userinfo, _, hosts = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    database = parts.path.removeprefix("/")
    # libpq prefers the parameter, the driver ignores it: dlq-handler would connect to the wrong server.
    for name, also in (
        *(("host", hosts), ("port", hosts), ("user", user), ("password", password)),
        *(("dbname", database), ("database", database)),
    ):
        if also and parameters.get(name):
            raise ValueError(
                f"a database URL with the {name} written before the ?, not after it, where the driver ignores it"
            )
    hosts = hosts or parameters.get("host", "")
    ports = parameters.get("port", "")
    if (hosts and not all(_is_host(host) for host in hosts.split(","))) or (
        ports and not all(_is_host(f"any:{port}") and port for port in ports.split(","))
    ):
        raise ValueError(
            "a database URL whose hosts are names, folders, or IPv6 addresses in brackets, with ports from 1 to 65535"
        )
    if ports.count(",") not in (0, hosts.count(",")):
        raise ValueError("a database URL with one port for all hosts, or one for each")


def _is_host(host: str) -> bool:
    if host.startswith("/"):
        return True
    try:
        split = urlsplit(f"//{host}")
        return bool(split.hostname) and split.port != 0 and "[" not in host[1:]
    except ValueError:
        return False


def _number(parameters: Mapping[str, str], name: str, *, least: int, largest: int) -> int | None:
    text = parameters.get(name)
    if not text:
        return None
    try:
        if least <= (number := int(text)) <= largest:
            return number
    except ValueError:
        pass
    raise ValueError(f"a database URL whose {name} is a whole number from {least} to {largest}")
