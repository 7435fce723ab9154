"""Send canaries: write each one down, publish it with its worker's key, note that the broker took it over.

Promises: what it declares is ours alone; a canary that was not sent, or of which nobody knows, is never taken for one
that was lost. Never: decides who gets one, or what it means that one does not arrive.
"""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID, uuid4

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.publish.message import Confirmed, OutgoingMessage
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.topology import canary_sql as store
from dlq_handler.topology.canary import CANARY_EXCHANGE, CanaryPlan, canary_body
from dlq_handler.topology.canary_queue import declare_canary
from dlq_handler.topology.canary_run import PublishedCanary


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderPolicy:
    plan: CanaryPlan
    names: WorkerQueueNames
    queue: str
    """The intake queue that canaries are to arrive in."""
    replica: str


class CanarySender:
    def __init__(
        self, database: Database, link: AdminConnection, publisher: Publisher, policy: SenderPolicy
    ) -> None:
        self._database, self._link, self._publisher, self._policy = database, link, publisher, policy
        self._declared_incarnation: int | None = None
        self._ttl_ms = policy.plan.ttl_ms

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
        policy, worker_of = self._policy, {uuid4(): worker for worker in workers}
        now = await store.add_probes(
            self._database,
            worker_of,
            queue=policy.queue,
            ttl_seconds=self.ttl_seconds,
            by=policy.replica,
        )
        messages = [
            OutgoingMessage(
                message_id=str(probe_id),
                correlation_id=str(probe_id),
                exchange=CANARY_EXCHANGE,
                routing_key=policy.names.routing_key(worker),
                body=canary_body(
                    probe_id, worker_id=worker, queue=policy.queue, sent_by=policy.replica, now=now
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
        incarnation = await self._link.open()
        if incarnation != self._declared_incarnation:
            self._ttl_ms = await declare_canary(self._link, self._policy.plan)
            self._declared_incarnation = incarnation
