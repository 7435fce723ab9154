"""Settings of the two listeners: health and metrics, dashboard and API; and who may use the latter.

A token itself is never a setting: it stands in a file of its own, so that neither `config show`, a variable nor a
ConfigMap can reveal it.
"""

import ipaddress
import json
import re
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from dlq_handler.options import OwnSection, Seconds, in_words

# 16 characters of a random token are beyond guessing over HTTP; what people make up themselves is shorter.
LEAST_TOKEN_CHARACTERS = 16
TOKENS_WANTED = "a list of {name, role: read|operate, token_file}"


def _token_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise ValueError("a name of 1 to 64 letters, digits and . _ -, which the audit shows")
    return name


def _origin(url: str) -> str:
    """As browsers write one: scheme and host, a port that is not the scheme's own, nothing else."""
    wanted = "an address such as https://dlq.example, without a path and without a user"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(wanted) from None
    is_more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not host or is_more or not url.isprintable():
        raise ValueError(wanted)
    shown_port = "" if port in (None, {"http": 80, "https": 443}[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{shown_port}"


def _page_url(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s#\"'<>]+", url):
        raise ValueError("an address such as https://docs.example/dlq-handler/runbook.md, without a #")
    return url


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"{TOKENS_WANTED}; in a variable a JSON array of such objects") from None


Origin = Annotated[str, AfterValidator(_origin), in_words("an address such as https://dlq.example")]
PageUrl = Annotated[str, AfterValidator(_page_url), in_words("an address of a page")]
TokenName = Annotated[str, AfterValidator(_token_name), in_words("a name of 1 to 64 characters")]


class UiToken(OwnSection):
    """A user, by the name that the audit shows."""

    name: TokenName
    role: Literal["read", "operate"]
    token_file: Annotated[str, Field(min_length=1)]


class HttpOptions(OwnSection):
    """Listener of health, readiness and metrics."""

    host: Annotated[str, Field(min_length=1)] = "0.0.0.0"  # noqa: S104  a sidecar is probed from outside its container
    """Address to listen on. With 127.0.0.1, probes from other hosts do not reach it."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 9464
    """Port to listen on. 0 means any free port; the log names it."""


class UiOptions(OwnSection):
    """Listener of dashboard and API, and its users."""

    enabled: bool = True
    """Serve the dashboard and the API."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen on. Anything but this machine's own (127.0.0.1, ::1, localhost) needs `tokens`, and is refused
    without."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8085
    """Port to listen on. 0 means any free port; the log names it."""
    external_url: Origin | None = None
    """Address by which users reach it, for example through a proxy. Requests for other host names than this one, this
    machine's and the address listened on are refused."""
    environment: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Name of this installation, such as `production`, shown on every page."""
    runbook_url: PageUrl | None = None
    """Where your copy of `docs/runbook.md` is, so that a diagnosis can link to its page in it; null: it is named, and
    no link."""
    tokens: Annotated[
        tuple[UiToken, ...],
        NoDecode,
        BeforeValidator(_decoded),
        in_words(TOKENS_WANTED),
    ] = ()
    """Users of dashboard and API. `read` shows everything but raw bodies, `operate` also allows actions. `token_file`
    holds the token, at least 16 characters, read once at the start. Empty: every client of the address may operate,
    which is why that is allowed on this machine only. In a variable: a JSON array."""
    pool_size: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum number of database connections for dashboard and API. They are not those of
    `dlq_handler.database.pool_size`, so that no search delays a dead letter."""
    statement_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 5000
    """Maximum duration of one statement for dashboard and API, in milliseconds."""
    refresh_seconds: Annotated[Seconds, Field(ge=1, le=3600)] = 10
    """Interval between two observations for the diagnosis, in seconds."""

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Only what is certain: a name may resolve to anything, except this one."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(token_file: str) -> str:
    """The text of a ValueError follows the file's name and names the problem, never the token."""
    try:
        token = FilePath(token_file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise ValueError(f"cannot be read ({reason})") from None
    if not token:
        raise ValueError("is empty")
    if not token.isascii() or any(not character.isprintable() or character.isspace() for character in token):
        raise ValueError("holds characters that no HTTP header can carry")
    if len(token) < LEAST_TOKEN_CHARACTERS:
        raise ValueError(f"holds {len(token)} characters")
    return token
