"""Calls from the listeners' event loop to services of the other loop, which owns their connections."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_queue
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.reprocess import Reprocessed, Reprocessor
from dlq_handler.explain.explain import Explanation, explain
from dlq_handler.explain.options import ExplainPolicy
from dlq_handler.host.names import REQUESTS_QUEUE
from dlq_handler.timeouts.cases import WorkerQueues
from dlq_handler.topology.consumers import Consumers, read_consumers
from dlq_handler.web.own_thread import OtherLoop
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.queue_observer import WorkerQueueObserver

# Longer than the broker's own deadlines.
BROKER_SECONDS = 15.0
# Longer than a transaction's own deadline, with the default timeouts.
REPROCESS_SECONDS = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    loop: OtherLoop
    database: Database
    """The ui's own, which belongs to the calling loop. All others belong to `loop`."""
    workers: WorkerQueueObserver
    link: AdminConnection
    management: ManagementApi
    consumer: QueueConsumer[DeadLetter]
    reprocessor: Reprocessor
    connections: ConnectionSource | None
    explain_policy: ExplainPolicy

    async def explain(self, execution_id: int) -> Explanation | None:
        """None: no record of it exists. Asks the broker about the one queue that the execution depends on."""
        return await explain(
            self.database,
            execution_id,
            self.explain_policy,
            sight=self,
            requests_queue=partial(self._count, REQUESTS_QUEUE),
            connections=self.connections,
        )

    async def count_intake(self) -> Consumers | None:
        """None: the intake queue does not exist."""
        return await self.loop.call(
            lambda: read_consumers(
                partial(count_queue, self.link),
                self.management,
                self.consumer.queue,
                own_unacknowledged=lambda: self.consumer.unacknowledged,
            ),
            within_seconds=BROKER_SECONDS,
        )

    async def reprocess(self, record_id: int) -> Reprocessed | None:
        """Where the intake processes dead letters: with its brake, its safety gate, its relay."""
        return await self.loop.call(
            lambda: self.reprocessor.reprocess(record_id), within_seconds=REPROCESS_SECONDS
        )

    async def look(self, worker_ids: Collection[int]) -> WorkerQueues:
        return await self.loop.call(
            lambda: self.workers.observe_quietly(worker_ids), within_seconds=BROKER_SECONDS
        )

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        return await self.loop.call(
            lambda: self.workers.longest_ttl_ms(worker_ids), within_seconds=BROKER_SECONDS
        )

    async def _count(self, queue: str) -> QueueCounts | None:
        return await self.loop.call(lambda: count_queue(self.link, queue), within_seconds=BROKER_SECONDS)
