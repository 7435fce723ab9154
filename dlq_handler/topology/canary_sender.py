"""Send canaries: write each one to the database, publish it with its worker's key, and note the broker's confirm.

Promises: declares nothing but the canary's own exchange and queue. A canary without a confirm never counts as lost.
An existing canary queue is used as it is, with the TTL of its declaration: arguments are fixed at creation, and two
replicas with different settings must not keep deleting each other's queue.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import probe_queue
from dlq_handler.broker.admin.snapshot import DEAD_LETTER_EXCHANGE_ARGUMENT
from dlq_handler.broker.client.broker_errors import ChannelAccessRefused, ChannelPreconditionFailed
from dlq_handler.broker.outgoing import Confirmed, OutgoingMessage
from dlq_handler.broker.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.topology import canary_sql as store
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE, CanaryPlan, canary_body
from dlq_handler.topology.canary_run import PublishedCanary


class CanaryRefused(Exception):
    """The canary cannot run on this broker; the text names the reason and what to do."""


async def declare_canary(admin: AdminConnection, plan: CanaryPlan) -> int:
    """Returns the TTL in force, in milliseconds. Safe to repeat, also concurrently. Raises `CanaryRefused`."""
    async with admin.channel(f"declare exchange {CANARY_EXCHANGE!r}") as channel:
        with _refusals():
            # Fanout: it takes every worker's key, and the message keeps it.
            await channel.exchange_declare(CANARY_EXCHANGE, exchange_type="fanout", durable=True)
    ttl_ms = plan.ttl_ms if await _declare_queue(admin, plan) else await _ttl_of_existing(admin, plan)
    async with admin.channel(f"bind queue {CANARY_QUEUE!r}") as channel:
        with _refusals():
            await channel.queue_bind(CANARY_QUEUE, CANARY_EXCHANGE)
    return ttl_ms


async def _declare_queue(admin: AdminConnection, plan: CanaryPlan) -> bool:
    """False: the queue exists with other arguments."""
    async with admin.channel(f"declare queue {CANARY_QUEUE!r}") as channel:
        try:
            with _refusals():
                await channel.queue_declare(CANARY_QUEUE, durable=True, arguments={**plan.queue_arguments})
        except _Different:
            return False
    return True


async def _ttl_of_existing(admin: AdminConnection, plan: CanaryPlan) -> int:
    """The queue was declared with other settings: usable if it dead-letters to the same exchange."""
    probed = await probe_queue(admin, CANARY_QUEUE)
    exchange = probed.arguments.get(DEAD_LETTER_EXCHANGE_ARGUMENT) if probed is not None else None
    ttl_ms = probed.ttl_ms if probed is not None else None
    if ttl_ms is None or exchange != plan.dead_letter_exchange:
        raise CanaryRefused(
            f"queue {CANARY_QUEUE!r} has x-dead-letter-exchange={exchange!r} and x-message-ttl={ttl_ms}, wanted were "
            f"{plan.dead_letter_exchange!r} and {plan.ttl_ms}; arguments are fixed at creation: delete it, it holds "
            "only canaries"
        )
    return ttl_ms


class _Different(CanaryRefused):
    """The exchange or queue exists with other arguments."""


@contextmanager
def _refusals() -> Iterator[None]:
    """To be used inside a channel's block: outside it, a refusal is reported as an unavailable broker."""
    try:
        yield
    except ChannelAccessRefused as refused:
        raise CanaryRefused(
            f"the broker refuses a right ({refused}); `dlq-handler grants` prints what the user needs, "
            "dlq_handler.canary.enabled: false does without"
        ) from refused
    except ChannelPreconditionFailed as refused:
        raise _Different(
            f"it exists with other arguments ({refused}); delete it: it belongs to dlq-handler"
        ) from refused


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
