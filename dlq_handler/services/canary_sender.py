"""Send canaries: write each one down, publish it with its worker's key, note that the broker took it over.

Promises: what it declares is ours alone; a canary that was not sent, or of which nobody knows, is never taken for one
that was lost. Never: decides who gets one, or what it means that one does not arrive.
"""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID, uuid4

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.canary import declare_canary
from dlq_handler.broker.publisher import Confirmed, OutgoingMessage, Publisher
from dlq_handler.domain.canary import CANARY_EXCHANGE, CanaryPlan, canary_body
from dlq_handler.domain.worker import WorkerQueueNames
from dlq_handler.errors import Unavailable
from dlq_handler.store import canary as store
from dlq_handler.store.engine import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderPolicy:
    plan: CanaryPlan
    names: WorkerQueueNames
    queue: str
    """The intake queue that canaries are to arrive in."""
    instance: str


class CanarySender:
    def __init__(
        self, database: Database, link: AdminLink, publisher: Publisher, policy: SenderPolicy
    ) -> None:
        """`publisher` is nobody else's: a right that is missing closes its channel under whatever is in flight."""
        self._database, self._link, self._publisher, self._policy = database, link, publisher, policy
        self._declared_incarnation: int | None = None
        self._ttl_ms = policy.plan.ttl_ms

    async def send(self, workers: Collection[int]) -> list[UUID]:
        """One for each worker; those that the broker took over. Raises `Unavailable`, `CanaryRefused`."""
        await self._declare()
        policy, worker_of = self._policy, {uuid4(): worker for worker in workers}
        now = await store.add_probes(
            self._database,
            worker_of,
            queue=policy.queue,
            ttl_seconds=self._ttl_ms / 1000,
            by=policy.instance,
        )
        messages = [
            OutgoingMessage(
                message_id=str(probe_id),
                correlation_id=str(probe_id),
                exchange=CANARY_EXCHANGE,
                routing_key=policy.names.routing_key(worker),
                body=canary_body(
                    probe_id, worker_id=worker, queue=policy.queue, sent_by=policy.instance, now=now
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
        failed = next((outcome for outcome in outcomes if outcome != Confirmed()), None)
        if failed is not None:
            # Perhaps somebody deleted the queue: the next round makes it again.
            self._declared_incarnation = None
            raise Unavailable("canary", f"{len(outcomes) - len(sent)} not sent: {failed.text}")
        return sent

    async def close(self) -> None:
        await self._publisher.close()

    async def _declare(self) -> None:
        incarnation = await self._link.open()
        if incarnation != self._declared_incarnation:
            self._ttl_ms = await declare_canary(self._link, self._policy.plan)
            self._declared_incarnation = incarnation
