"""Read a vhost from RabbitMQ's management API. Reads only.

Every failure is `Unavailable`; the credentials of the URL are in no message. A user with the tag 'management' sees
all of this except the consumers and connections of other users, which need the tag 'monitoring'. Statistics are up to
ten seconds old. Those of all queues cost the broker seconds of computing in a large vhost, so they are asked for queue
by queue. Long answers are parsed in a thread: the event loop must not wait for them.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx

from dlq_handler.broker.admin.api_rows import (
    Policies,
    declared_ttl_ms,
    mapping,
    read_binding,
    read_consumer,
    read_exchange,
    read_queue,
    rows_of,
)
from dlq_handler.broker.admin.snapshot import ConsumerFacts, Snapshot
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable
from dlq_handler.health import bounded
from dlq_handler.tasks import task_group

_REFUSED = frozenset({401, 403})
_MISSING = 404

# Each refused request leaves a warning in the broker's log, and background checks ask every few seconds.
REFUSED_PAUSE_SECONDS = 300.0

REFUSED = "it refuses this user; give it the tag 'monitoring'"

# More at once would load a broker whose management API is slow.
MAX_CONCURRENT = 4

_PARSED_IN_THREAD_BYTES = 100_000

_QUEUE_COLUMNS = "name,type,durable,auto_delete,arguments,policy"
_BINDING_COLUMNS = "source,destination,destination_type,routing_key,arguments"

Rows = Sequence[Mapping[str, Any]]
Answer = TypeVar("Answer")
Fact = TypeVar("Fact")


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

    async def snapshot(self, *, consumers_of: str | None = None) -> Snapshot:
        """The whole vhost, by several requests one after the other: not one instant. Consumers of one queue only."""
        async with self._client() as client:
            overview = await self._get(client, "overview?columns=rabbitmq_version")
            policies = await self._get(client, f"policies/{self._vhost}")
            limits = await self._operator_limits(client)
            with self._answer_of_rabbitmq():
                version = str(overview.get("rabbitmq_version", ""))
                known: Policies = {row["name"]: row["definition"] for row in policies}
            exchanges = await self._list(
                client,
                f"exchanges/{self._vhost}?columns=name,type,arguments,policy",
                partial(read_exchange, policies=known),
            )
            queues = await self._list(
                client,
                # Without statistics, which are seconds old: the rest is current.
                f"queues/{self._vhost}?disable_stats=true&columns={_QUEUE_COLUMNS}",
                partial(read_queue, policies=known, limits=limits),
            )
            bindings = await self._list(
                client, f"bindings/{self._vhost}?columns={_BINDING_COLUMNS}", read_binding
            )
            consumers = () if consumers_of is None else await self._consumers(client, consumers_of)
        return await asyncio.to_thread(
            partial(
                Snapshot,
                exchanges=exchanges,
                queues=queues,
                bindings=bindings,
                consumers=consumers,
                broker_version=version,
            )
        )

    async def queue_statistics(
        self, queues: Collection[str], *, within_seconds: float
    ) -> dict[str, QueueStatistics]:
        """Queues without statistics, or without an answer in time, are left out. Raises `Unavailable` without any."""
        found = await self._each(queues, self._statistics, within_seconds)
        return {queue: statistics for queue, statistics in found.items() if statistics is not None}

    async def queue_arguments(self) -> dict[str, Mapping[str, object]]:
        """The arguments of the declaration of every queue of the vhost, as of now."""
        path = f"queues/{self._vhost}?disable_stats=true&columns=name,arguments"
        async with self._client() as client:
            # A dict of its own for each: the shared empty mapping has no JSON.
            rows = await self._list(
                client, path, lambda row: (str(row["name"]), {**mapping(row.get("arguments"))})
            )
            return dict(rows)

    async def unacknowledged(self, queue: str) -> int | None:
        """Unacknowledged messages of this queue. None: unknown."""
        path = f"{self._queue_path(queue)}?columns=messages_unacknowledged"
        async with self._client() as client:
            number = mapping(await self._get(client, path)).get("messages_unacknowledged")
        return number if isinstance(number, int) else None

    async def queue_names(self) -> frozenset[str]:
        """The names of all queues of the vhost, as of now."""
        path = f"queues/{self._vhost}?disable_stats=true&columns=name"
        async with self._client() as client:
            return frozenset(await self._list(client, path, lambda row: str(row["name"])))

    async def consumer_tags(self, queue: str) -> tuple[str, ...]:
        """The tags of this queue's consumers, as far as this user may see them. Up to five seconds old."""
        async with self._client() as client:
            return tuple(consumer.tag for consumer in await self._consumers(client, queue))

    async def consumers_of(
        self, queues: Collection[str], *, within_seconds: float
    ) -> dict[str, tuple[ConsumerFacts, ...] | None]:
        """One request for each queue. A missing queue has no consumers. One statistics interval late (5 s by default).

        None: no answer. A queue that is left out was not requested, because the time was over.
        """
        return await self._each(queues, self._consumers, within_seconds)

    async def connection_ages(self, names: Collection[str], *, within_seconds: float) -> dict[str, float]:
        """By the broker's own clock, up to 2 s too low. Closed connections and those without an answer are left out."""
        ages = await self._each(names, self._age, within_seconds)
        return {name: age for name, age in ages.items() if age is not None}

    async def alarms(self) -> list[str]:
        """The alarms that keep nodes from taking messages, one sentence each."""
        async with self._client() as client:
            rows: Rows = await self._get(client, "nodes?columns=name,running,mem_alarm,disk_free_alarm")
        alarms = {"mem_alarm": "memory alarm", "disk_free_alarm": "disk alarm"}
        with self._answer_of_rabbitmq():
            # The alarms of a node that is down are unknown.
            running = [row for row in rows if row["running"]]
            if any(key not in row for row in running for key in alarms):
                raise Unavailable(self._where, "it has no statistics of its nodes (yet)")
            return [
                f"{alarm} on {row['name']}" for row in running for key, alarm in alarms.items() if row[key]
            ]

    async def uptime_seconds(self) -> float:
        """Of the node with the longest uptime: the broker has run without interruption since then."""
        async with self._client() as client:
            rows: Rows = await self._get(client, "nodes?columns=name,running,uptime")
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

    def _queue_path(self, queue: str) -> str:
        return f"queues/{self._vhost}/{quote(queue, safe='')}"

    async def _each(
        self,
        names: Collection[str],
        ask: Callable[[httpx.AsyncClient, str], Awaitable[Answer]],
        within_seconds: float,
    ) -> dict[str, Answer | None]:
        """A few requests at a time, in the given order. Raises `Unavailable` if none was answered."""
        answers: dict[str, Answer | None] = {}
        answered: set[str] = set()
        errors: list[Unavailable] = []
        waiting = iter(names)

        async def ask_the_next(client: httpx.AsyncClient) -> None:
            for name in waiting:
                answers[name] = None
                try:
                    answers[name] = await ask(client, name)
                    answered.add(name)
                except Unavailable as error:
                    # For example the queue of a node that is down: others may be answered.
                    errors.append(error)

        with suppress(TimeoutError):
            async with self._client() as client, bounded(within_seconds), task_group() as tasks:
                for _ in range(MAX_CONCURRENT):
                    tasks.create_task(ask_the_next(client))
        if names and not answered:
            raise (
                errors[0] if errors else Unavailable(self._where, f"no answer within {within_seconds:.1f} s")
            )
        return answers

    async def _consumers(self, client: httpx.AsyncClient, queue: str) -> tuple[ConsumerFacts, ...]:
        answer = await self._find(client, f"{self._queue_path(queue)}?columns=consumer_details")
        row = {"consumer_details": []} if answer is None else await self._json(answer)
        with self._answer_of_rabbitmq():
            # Erlang encodes an empty table as an empty list.
            return tuple(read_consumer(one, queue) for one in row["consumer_details"])

    async def _statistics(self, client: httpx.AsyncClient, queue: str) -> QueueStatistics | None:
        columns = "name,arguments,messages_ready,messages_unacknowledged"
        answer = await self._find(client, f"{self._queue_path(queue)}?columns={columns}")
        row = {} if answer is None else await self._json(answer)
        # A queue that was just declared has none yet, and some brokers are configured to collect none.
        if "messages_unacknowledged" not in row:
            return None
        with self._answer_of_rabbitmq():
            return QueueStatistics(
                ready=int(row["messages_ready"]),
                unacked=int(row["messages_unacknowledged"]),
                ttl_ms=declared_ttl_ms(mapping(row.get("arguments"))),
            )

    async def _age(self, client: httpx.AsyncClient, name: str) -> float | None:
        answer = await self._find(client, f"connections/{quote(name, safe='')}?columns=connected_at")
        if answer is None:
            return None
        try:
            connected_at = float((await self._json(answer))["connected_at"]) / 1000
            return parsedate_to_datetime(answer.headers["date"]).timestamp() - connected_at
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable(self._where, f"it does not date connections ({error!r})") from error

    async def _operator_limits(self, client: httpx.AsyncClient) -> Policies:
        """Each queue's policy after operator policies. Only the statistics show it, seconds late."""
        if not await self._get(client, f"operator-policies/{self._vhost}"):
            return {}
        rows: Rows = await self._get(client, f"queues/{self._vhost}?columns=name,effective_policy_definition")
        return {row["name"]: mapping(row.get("effective_policy_definition")) for row in rows}

    async def _get(self, client: httpx.AsyncClient, path: str) -> Any:
        return await self._json(await self._ask(client, path))

    async def _list(
        self, client: httpx.AsyncClient, path: str, read: Callable[[Mapping[str, Any]], Fact | None]
    ) -> list[Fact]:
        """What `read` makes of each row. None: the row does not matter."""
        content = (await self._ask(client, path)).content

        def read_all() -> list[Fact]:
            return [fact for row in rows_of(content) if (fact := read(row)) is not None]

        with self._answer_of_rabbitmq():
            if len(content) < _PARSED_IN_THREAD_BYTES:
                return read_all()
            return await asyncio.to_thread(read_all)

    async def _find(self, client: httpx.AsyncClient, path: str) -> httpx.Response | None:
        """None: the object does not exist."""
        try:
            return await self._ask(client, path)
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, httpx.HTTPStatusError) and cause.response.status_code == _MISSING:
                return None
            raise

    async def _json(self, answer: httpx.Response) -> Any:
        try:
            if len(answer.content) < _PARSED_IN_THREAD_BYTES:
                return answer.json()
            return await asyncio.to_thread(json.loads, answer.content)
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

    @contextmanager
    def _answer_of_rabbitmq(self) -> Iterator[None]:
        """An answer of another shape, for example of a proxy, is no answer."""
        try:
            yield
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Unavailable(self._where, f"it answers, but not as RabbitMQ does ({error!r})") from error


@cache
def _certificates() -> ssl.SSLContext:
    """Read once per process."""
    return ssl.create_default_context()
