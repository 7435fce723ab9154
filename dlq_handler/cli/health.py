"""`dlq-handler health`: is the replica in this container alive? One line, and exit code 0 or 1 as HEALTHCHECK wants.

Light, because a container runtime asks again and again: to load the settings alone takes half a second of CPU. So it
reads only where the listener is, by the rules of `settings.load`; a test compares the two. Asks /healthz, never
/readyz: an unhealthy container is restarted, and that does not bring back an unavailable database.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

TIMEOUT_SECONDS = 2.0
LONGEST_ANSWER_BYTES = 10_000
DEFAULT_HOST, DEFAULT_PORT = "0.0.0.0", "9464"  # noqa: S104  the address in the settings; no connection is opened to it
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  who listens everywhere is asked here


def check_health(config: Path | None = None, environ: Mapping[str, str] = os.environ) -> int:
    host, port = listener_address(config, environ)
    try:
        answer = ask(host, int(port), "/healthz")
    except (OSError, ValueError) as error:
        answer = str(error) or type(error).__name__
    is_alive = answer.startswith("HTTP/1.") and answer.split()[1:2] == ["200"]
    print(f"{'alive' if is_alive else 'not alive'}: {host}:{port}/healthz: {answer}")
    return 0 if is_alive else 1


def ask(host: str, port: int, path: str) -> str:
    """The first line of the answer; unless it is 200, its body too, which says what is wrong.

    By hand: `http.client` takes longer to import than the answer to arrive.
    """
    with socket.create_connection((host, port), TIMEOUT_SECONDS) as link, link.makefile("rb") as answer:
        link.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        status = _text(answer.readline(100))
        if not status.startswith("HTTP/1.") or status.split()[1:2] == ["200"]:
            return status
        head_and_body = answer.read(LONGEST_ANSWER_BYTES).partition(b"\r\n\r\n")
        return f"{status}: {_text(head_and_body[2])}" if head_and_body[2] else status


def _text(answer: bytes) -> str:
    return answer.decode("ascii", "backslashreplace").strip()


def listener_address(config: Path | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """Where `run` listens with these settings. Unusable settings give any address: no replica runs with them."""
    found = {"host": DEFAULT_HOST, "port": DEFAULT_PORT}
    for file in _files(config, environ):
        found |= _http_section(file)
    variables = {name.upper(): value for name, value in environ.items() if value}
    for key, value in found.items():
        found[key] = variables.get(f"ATTUNE__DLQ_HANDLER__HTTP__{key.upper()}", value)
    return LOOPBACK.get(found["host"], found["host"]), found["port"]


def _files(config: Path | None, environ: Mapping[str, str]) -> Iterator[Path]:
    named = config or environ.get("ATTUNE_CONFIG")
    environment = environ.get("ATTUNE__ENVIRONMENT") or "development"
    for name in (named,) if named else ("config.yaml", f"config.{environment}.yaml"):
        if (file := Path(name)).is_file():
            yield file


def _http_section(file: Path) -> dict[str, str]:
    import yaml  # noqa: PLC0415  costs as much as all the rest, and many a container has variables alone

    try:
        section = yaml.load(file.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both are safe
        for name in ("dlq_handler", "http"):
            section = (section or {}).get(name)
        return {key: str(value) for key, value in (section or {}).items() if key in {"host", "port"}}
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return {}
