"""Read from the management API which connections consume a queue, and how old they are. Reads only.

A user without the tag 'monitoring' does not see the age of other users' connections.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import quote

import httpx

from dlq_handler.broker.admin.management_api import ManagementApi, consumer_facts
from dlq_handler.broker.admin.snapshot import ConsumerFacts
from dlq_handler.errors import Unavailable
from dlq_handler.health import bounded
from dlq_handler.tasks import task_group

_MISSING = 404

# More at once would load a broker whose management API is slow.
MAX_CONCURRENT = 4

Answer = TypeVar("Answer")


class ConsumerConnections(ManagementApi):
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
        path = f"queues/{self._vhost}/{quote(queue, safe='')}?columns=consumer_details"
        answer = await self._find(client, path)
        row = {"consumer_details": []} if answer is None else self._json(answer)
        try:
            return tuple(consumer_facts(one) for one in row["consumer_details"])
        except (KeyError, TypeError) as error:
            raise Unavailable(self._where, f"it does not list consumers ({error!r})") from error

    async def _age(self, client: httpx.AsyncClient, name: str) -> float | None:
        answer = await self._find(client, f"connections/{quote(name, safe='')}?columns=connected_at")
        if answer is None:
            return None
        try:
            connected_at = float(self._json(answer)["connected_at"]) / 1000
            return parsedate_to_datetime(answer.headers["date"]).timestamp() - connected_at
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable(self._where, f"it does not date connections ({error!r})") from error

    async def _find(self, client: httpx.AsyncClient, path: str) -> httpx.Response | None:
        """None: the object does not exist."""
        try:
            return await self._ask(client, path)
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, httpx.HTTPStatusError) and cause.response.status_code == _MISSING:
                return None
            raise
