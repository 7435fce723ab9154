"""Declare the canary's own exchange and queue. Nothing of the host is declared or changed.

An existing queue is used as it is, with the TTL of its declaration: arguments are fixed at creation, and two replicas
with different settings must not keep deleting each other's queue.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import DEAD_LETTER_EXCHANGE_ARGUMENT, probe_queue
from dlq_handler.broker.client.broker_errors import ChannelAccessRefused, ChannelPreconditionFailed
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE, CanaryPlan


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
