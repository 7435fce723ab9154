"""Send canaries: write each one to the database, publish it with its worker's key, and note the broker's confirm.

Promises: declares nothing but the canary's own exchange and queue. A canary without a confirm never counts as lost.
"""

from collections.abc import Collection
from uuid import UUID, uuid4

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.publish.message import Confirmed, OutgoingMessage
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.topology import canary_sql as store
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.canary import CANARY_EXCHANGE, CanaryPlan, canary_body
from dlq_handler.topology.canary_queue import declare_canary
from dlq_handler.topology.canary_run import PublishedCanary


class CanarySender:
    def __init__(
        self,
        database: Database,
        admin: AdminConnection,
        publisher: Publisher,
        blueprint: Blueprint,
        *,
        ttl_ms: int,
        replica: str,
    ) -> None:
        self._database, self._admin, self._publisher = database, admin, publisher
        self._workers, self._replica = blueprint.workers, replica
        self._plan = CanaryPlan(dead_letter_exchange=blueprint.dead_letter_exchange, ttl_ms=ttl_ms)
        self._declared_incarnation: int | None = None
        self._ttl_ms = ttl_ms
        self.queue = blueprint.intake_queue
        """The intake queue that canaries are to arrive in."""

    @property
    def ttl_seconds(self) -> float:
        """Of the canary queue: as configured before the first publish, as declared after it."""
        return self._ttl_ms / 1000

    async def send(self, workers: Collection[int]) -> list[UUID]:
        """One for each worker; all of them are confirmed. Raises `Unavailable`, `CanaryRefused`."""
        published = await self.publish(workers)
        errors = [one.error for one in published if one.error is not None]
        if errors:
            raise Unavailable("canary", f"{len(errors)} not sent: {errors[0]}")
        return [one.id for one in published]

    async def publish(self, workers: Collection[int]) -> list[PublishedCanary]:
        """One for each worker, in this order, confirmed or not. Raises `Unavailable`, `CanaryRefused`."""
        await self._declare()
        worker_of = {uuid4(): worker for worker in workers}
        now = await store.add_probes(
            self._database,
            worker_of,
            queue=self.queue,
            ttl_seconds=self.ttl_seconds,
            by=self._replica,
        )
        messages = [
            OutgoingMessage(
                message_id=str(probe_id),
                correlation_id=str(probe_id),
                exchange=CANARY_EXCHANGE,
                routing_key=self._workers.routing_key(worker),
                body=canary_body(
                    probe_id, worker_id=worker, queue=self.queue, sent_by=self._replica, now=now
                ),
            )
            for probe_id, worker in worker_of.items()
        ]
        outcomes = await self._publisher.publish(messages)
        sent = [
            probe_id for probe_id, outcome in zip(worker_of, outcomes, strict=True) if outcome == Confirmed()
        ]
        if sent:
            await store.mark_sent(self._database, sent)
        if len(sent) < len(outcomes):
            # The queue may have been deleted: declare it again before the next publish.
            self._declared_incarnation = None
        return [
            PublishedCanary(
                id=probe_id, worker_id=worker, error=None if outcome == Confirmed() else outcome.text
            )
            for (probe_id, worker), outcome in zip(worker_of.items(), outcomes, strict=True)
        ]

    async def _declare(self) -> None:
        incarnation = await self._admin.open()
        if incarnation != self._declared_incarnation:
            self._ttl_ms = await declare_canary(self._admin, self._plan)
            self._declared_incarnation = incarnation
