"""Read a vhost from RabbitMQ's management API into a `Snapshot`. Reads only.

Every failure is `Unavailable`; the credentials of the URL are in no message. A user with the tag 'management' sees
all of this except the consumers of other users, which need the tag 'monitoring'.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx

from dlq_handler.broker.admin.snapshot import BindingFacts, ConsumerFacts, ExchangeFacts, QueueFacts, Snapshot
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable
from dlq_handler.health import bounded

_REFUSED = frozenset({401, 403})

# Each refused request leaves a warning in the broker's log, and background checks ask every few seconds.
REFUSED_PAUSE_SECONDS = 300.0

REFUSED = "it refuses this user; give it the tag 'monitoring'"

Rows = Sequence[Mapping[str, Any]]
Policies = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """Two counts of one past moment, and the TTL of the queue's declaration."""

    ready: int
    unacked: int
    ttl_ms: int | None


class ManagementApi:
    def __init__(self, url: str, *, vhost: str, timeout_seconds: float = 10.0) -> None:
        """`vhost` in plain text, not percent-encoded."""
        parts = urlsplit(url)
        self._auth = (unquote(parts.username or "guest"), unquote(parts.password or "guest"))
        netloc = parts.netloc.rpartition("@")[2]
        self._base = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
        self._vhost = quote(vhost, safe="")
        self._timeout_seconds = timeout_seconds
        self._refused_until = float("-inf")

    async def snapshot(self) -> Snapshot:
        """The whole vhost, by several requests one after the other: not one instant."""
        async with self._client() as client:
            overview = await self._get(client, "overview")
            exchanges = await self._rows(client, f"exchanges/{self._vhost}")
            # Without statistics, which are seconds old: the rest is current.
            queues = await self._rows(client, f"queues/{self._vhost}?disable_stats=true")
            bindings = await self._rows(client, f"bindings/{self._vhost}")
            consumers = await self._rows(client, f"consumers/{self._vhost}")
            policies = await self._rows(client, f"policies/{self._vhost}")
            limits = await self._operator_limits(client)
        try:
            known = {row["name"]: row["definition"] for row in policies}
            return Snapshot(
                exchanges=[_exchange(row, known) for row in exchanges],
                queues=[_queue(row, known, limits) for row in queues],
                bindings=[_binding(row) for row in bindings],
                consumers=[consumer_facts(row) for row in consumers],
                broker_version=str(overview.get("rabbitmq_version", "")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise Unavailable(self._where, f"it answers, but not as RabbitMQ does ({error!r})") from error

    async def queue_statistics(self) -> dict[str, QueueStatistics]:
        """Of every queue of the vhost that has statistics, in one request. Up to ten seconds old."""
        columns = "name,arguments,messages_ready,messages_unacknowledged"
        async with self._client() as client:
            rows = await self._rows(client, f"queues/{self._vhost}?columns={columns}")
        try:
            # A queue that was just declared has none yet, and some brokers are configured to collect none.
            return {row["name"]: _statistics(row) for row in rows if "messages_unacknowledged" in row}
        except (KeyError, TypeError, AttributeError) as error:
            raise Unavailable(self._where, f"it answers, but not as RabbitMQ does ({error!r})") from error

    async def unacknowledged(self, queue: str) -> int | None:
        """Unacknowledged messages of this queue, up to ten seconds old. None: unknown."""
        path = f"queues/{self._vhost}/{quote(queue, safe='')}?columns=messages_unacknowledged"
        async with self._client() as client:
            row = _mapping(await self._get(client, path))
        number = row.get("messages_unacknowledged")
        return number if isinstance(number, int) else None

    async def queue_names(self) -> frozenset[str]:
        """The names of all queues of the vhost, as of now."""
        async with self._client() as client:
            rows = await self._rows(client, f"queues/{self._vhost}?disable_stats=true&columns=name")
        try:
            return frozenset(str(row["name"]) for row in rows)
        except (KeyError, TypeError) as error:
            raise Unavailable(self._where, f"it answers, but not as RabbitMQ does ({error!r})") from error

    async def consumer_tags(self, queue: str) -> tuple[str, ...]:
        """The tags of this queue's consumers, as far as this user may see them."""
        async with self._client() as client:
            rows = await self._rows(client, f"consumers/{self._vhost}")
        consumers = [consumer_facts(row) for row in rows]
        return tuple(consumer.tag for consumer in consumers if consumer.queue == queue)

    async def alarms(self) -> list[str]:
        """The alarms that keep nodes from taking messages, one sentence each. Up to ten seconds old."""
        async with self._client() as client:
            rows = await self._rows(client, "nodes?columns=name,running,mem_alarm,disk_free_alarm")
        alarms = {"mem_alarm": "memory alarm", "disk_free_alarm": "disk alarm"}
        try:
            # The alarms of a node that is down are unknown.
            running = [row for row in rows if row["running"]]
            if any(key not in row for row in running for key in alarms):
                raise Unavailable(self._where, "it has no statistics of its nodes (yet)")
            return [
                f"{alarm} on {row['name']}" for row in running for key, alarm in alarms.items() if row[key]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise Unavailable(self._where, f"it answers, but not as RabbitMQ does ({error!r})") from error

    async def uptime_seconds(self) -> float:
        """Of the node with the longest uptime: the broker has run without interruption since then. Some seconds old."""
        async with self._client() as client:
            rows = await self._rows(client, "nodes?columns=name,running,uptime")
        try:
            uptimes = [float(row["uptime"]) / 1000 for row in rows if row["running"]]
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable(self._where, "it has no statistics of its nodes (yet)") from error
        if not uptimes:
            raise Unavailable(self._where, "it knows no running node")
        return max(uptimes)

    async def clock(self) -> datetime:
        """The time of the node that answers, to the second."""
        async with self._client() as client:
            answer = await self._ask(client, "whoami")
        try:
            return parsedate_to_datetime(answer.headers["date"])
        except (KeyError, ValueError) as error:
            raise Unavailable(self._where, "it answers, but without its time") from error

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        is_https = self._base.startswith("https:")
        async with httpx.AsyncClient(
            auth=self._auth,
            timeout=self._timeout_seconds,
            # AMQP goes through no proxy of the environment, so neither does the API beside it.
            trust_env=False,
            # In a thread: reading the certificates takes tens of milliseconds, which would block the event loop.
            verify=await asyncio.to_thread(_certificates) if is_https else False,
        ) as client:
            yield client

    @property
    def _where(self) -> str:
        return f"management API at {self._base}"

    async def _operator_limits(self, client: httpx.AsyncClient) -> Policies:
        """Each queue's policy after operator policies. Only the statistics show it, seconds late."""
        if not await self._rows(client, f"operator-policies/{self._vhost}"):
            return {}
        rows = await self._rows(client, f"queues/{self._vhost}?columns=name,effective_policy_definition")
        return {row["name"]: _mapping(row.get("effective_policy_definition")) for row in rows}

    async def _rows(self, client: httpx.AsyncClient, path: str) -> Rows:
        rows: Rows = await self._get(client, path)
        return rows

    async def _get(self, client: httpx.AsyncClient, path: str) -> Any:
        return self._json(await self._ask(client, path))

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError as error:
            raise Unavailable(self._where, f"{type(error).__name__}: {error}") from error

    async def _ask(self, client: httpx.AsyncClient, path: str) -> httpx.Response:
        if monotonic_seconds() < self._refused_until:
            raise Unavailable(self._where, REFUSED)
        try:
            async with bounded(self._timeout_seconds):
                answer = await client.get(f"{self._base}/api/{path}")
            if answer.status_code in _REFUSED:
                self._refused_until = monotonic_seconds() + REFUSED_PAUSE_SECONDS
                raise Unavailable(self._where, REFUSED)
            return answer.raise_for_status()
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unavailable(self._where, f"{type(error).__name__}: {error}") from error


@cache
def _certificates() -> ssl.SSLContext:
    """Read once per process."""
    return ssl.create_default_context()


def _mapping(value: object) -> Mapping[str, Any]:
    # Erlang encodes an empty table as an empty list.
    return value if isinstance(value, Mapping) else {}


def _exchange(row: Mapping[str, Any], policies: Policies) -> ExchangeFacts:
    policy = row.get("policy")
    return ExchangeFacts(
        name=row["name"],
        type=row["type"],
        arguments=_mapping(row.get("arguments")),
        policy=policies.get(policy, {}) if policy else {},
        # A policy that was made or removed between two requests is unknown too.
        policy_is_known=not policy or policy in policies,
    )


def _queue(row: Mapping[str, Any], policies: Policies, limits: Policies) -> QueueFacts:
    policy = row.get("policy")
    return QueueFacts(
        name=row["name"],
        type=row.get("type", "classic"),
        durable=row["durable"],
        auto_delete=bool(row["auto_delete"]),
        arguments=_mapping(row.get("arguments")),
        policy={**(policies.get(policy, {}) if policy else {}), **limits.get(row["name"], {})},
        # A policy that was made or removed between two requests is unknown too.
        policy_is_known=not policy or policy in policies,
    )


def _statistics(row: Mapping[str, Any]) -> QueueStatistics:
    ttl_ms = _mapping(row.get("arguments")).get("x-message-ttl")
    return QueueStatistics(
        ready=int(row["messages_ready"]),
        unacked=int(row["messages_unacknowledged"]),
        ttl_ms=ttl_ms if isinstance(ttl_ms, int) else None,
    )


def _binding(row: Mapping[str, Any]) -> BindingFacts:
    return BindingFacts(
        source=row["source"],
        destination=row["destination"],
        to_exchange=row["destination_type"] == "exchange",
        routing_key=row["routing_key"],
        arguments=_mapping(row.get("arguments")),
    )


def consumer_facts(row: Mapping[str, Any]) -> ConsumerFacts:
    return ConsumerFacts(
        queue=_mapping(row.get("queue")).get("name", ""),
        tag=row["consumer_tag"],
        connection=_mapping(row.get("channel_details")).get("connection_name", ""),
    )
