"""The retired queue: what is still published for retired workers and stopped flows, received by every replica.

A message of it fails its execution only if its worker can no longer receive the same dispatch (decide.py). So before
each transaction the broker is asked whether the worker has a queue again.

Promises: the queue is declared when it is missing, and a consumer that the broker does not know is opened again. Never:
asks about the queue of more than one worker for one message, or remembers an answer.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_all
from dlq_handler.broker.consumer import QueueConsumer, QueueMissing
from dlq_handler.dead_letters.decide import retired_workers
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.rescued import as_checked
from dlq_handler.endings.writers import Writer
from dlq_handler.errors import Unavailable
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.loop import every
from dlq_handler.topology.blueprint import RETIRED_QUEUE

log = structlog.get_logger()


class OwnQueueCheck:
    """Whether the workers of messages from the retired queue have queues again."""

    def __init__(self, admin: AdminConnection, names: WorkerQueueNames) -> None:
        self._admin, self._names = admin, names

    async def complete(self, letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
        queues_of = [
            frozenset(map(self._names.queue, retired_workers(letter, self._names))) for letter in letters
        ]
        counted = await count_all(self._admin, frozenset[str]().union(*queues_of))
        now = datetime.now(UTC)
        return [
            as_checked(letter, has_own_queue=_is_there(queues, counted), now=now)
            for letter, queues in zip(letters, queues_of, strict=True)
        ]


def _is_there(queues: frozenset[str], counted: dict[str, QueueCounts | None]) -> bool | None:
    """None: unknown. The broker refuses to count a queue that the user has no right to."""
    if not queues or any(queue not in counted for queue in queues):
        return None
    return any(counted[queue] is not None for queue in queues)


async def declare_retired_queue(admin: AdminConnection) -> None:
    """Durable, without arguments: nothing in it expires, and nothing is dropped."""
    async with admin.channel(f"declare queue {RETIRED_QUEUE!r}") as channel:
        await channel.queue_declare(RETIRED_QUEUE, durable=True)


class RetiredQueueWatch:
    """Keeps the retired queue declared, and this replica's consumer on it registered."""

    def __init__(
        self,
        admin: AdminConnection,
        source: QueueConsumer[Any],
        writer: Writer,
        *,
        interval_seconds: float = 5.0,
    ) -> None:
        self._admin, self._source, self._writer = admin, source, writer
        self._interval_seconds = interval_seconds
        self._wake = asyncio.Event()
        self.waiting: int | None = None
        """Messages ready in the retired queue, a few seconds ago; None: unknown."""

    def reapply_now(self) -> None:
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="retired-queue-watch", wake=self._wake)

    async def tick(self) -> None:
        self._wake.clear()
        try:
            self._writer.check()
        except Unavailable as error:
            self._source.give_up(str(error))
        was_consuming = self._source.incarnation if self._source.is_consuming else None
        self.waiting = None
        try:
            counts = await self._source.count()
        except QueueMissing:
            await declare_retired_queue(self._admin)
            counts = await self._source.count()
        self.waiting = counts.ready
        if counts.consumers == 0 and was_consuming is not None and was_consuming == self._source.incarnation:
            log.error("intake.unregistered", queue=self._source.queue)
            self._source.give_up("the broker has no consumer of this replica")
