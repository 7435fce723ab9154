"""The settings of a reference process, from its environment alone: Attune's own variables and the sandbox's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sandbox.attune.defects import Cured, read_cured
from sandbox.attune.topology import WorkerQueues
from sandbox.times import Times

_DATABASE_URL = "postgresql://postgres:postgres@localhost:5432/attune"
_AMQP_URL = "amqp://guest:guest@localhost:5672/%2f"


class BadEnvironment(Exception):
    """A variable says what cannot be; the sentence names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    database_url: str
    schema: str
    amqp_url: str
    times: Times
    cured: Cured
    api_host: str
    api_port: int
    api_token: str
    is_monitored: bool
    """Whether the executor's own timeout monitor runs."""
    scheduled_timeout_seconds: int
    check_seconds: int
    heartbeat_seconds: int
    worker_queues: WorkerQueues

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Self:
        """Raises BadEnvironment. As for Attune, what is not set has its default, and TTLs are not settings (D3)."""
        try:
            times = Times.named(variables.get("SANDBOX_TIMES") or "scaled")
        except ValueError as error:
            raise BadEnvironment(f"SANDBOX_TIMES: {error}") from error
        try:
            cured = read_cured(variables.get("SANDBOX_CURED", ""))
        except ValueError as error:
            raise BadEnvironment(f"SANDBOX_CURED: {error}") from error
        return cls(
            database_url=variables.get("ATTUNE__DATABASE__URL") or _DATABASE_URL,
            schema=variables.get("ATTUNE__DATABASE__SCHEMA") or "attune",
            amqp_url=variables.get("ATTUNE__MESSAGE_QUEUE__URL") or _AMQP_URL,
            times=times,
            cured=cured,
            api_host=variables.get("SANDBOX_API_HOST") or "127.0.0.1",
            api_port=_whole(variables, "SANDBOX_API_PORT", 8080),
            api_token=variables.get("SANDBOX_API_TOKEN") or "sandbox",
            is_monitored=_is_true(variables, "ATTUNE__EXECUTOR__ENABLE_TIMEOUT_MONITOR"),
            scheduled_timeout_seconds=_whole(
                variables, "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT", times.scheduled_timeout_seconds
            ),
            check_seconds=_whole(variables, "ATTUNE__EXECUTOR__TIMEOUT_CHECK_INTERVAL", times.check_seconds),
            heartbeat_seconds=_whole(
                variables, "ATTUNE__WORKER__HEARTBEAT_INTERVAL", times.heartbeat_seconds
            ),
            worker_queues=_worker_queues(variables),
        )


def _worker_queues(variables: Mapping[str, str]) -> WorkerQueues:
    text = variables.get("SANDBOX_WORKER_QUEUES") or WorkerQueues.OWN
    if text not in set(WorkerQueues):
        raise BadEnvironment(f"SANDBOX_WORKER_QUEUES is {text!r}; wanted is {' or '.join(WorkerQueues)}")
    return WorkerQueues(text)


def _whole(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name) or str(default)
    if not text.isdecimal():
        raise BadEnvironment(f"{name} is {text!r}; wanted is a whole number")
    return int(text)


def _is_true(variables: Mapping[str, str], name: str) -> bool:
    text = (variables.get(name) or "true").lower()
    if text not in {"true", "false"}:
        raise BadEnvironment(f"{name} is {text!r}; wanted is true or false")
    return text == "true"
