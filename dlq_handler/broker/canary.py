"""Make the canary's own exchange and queue. Nothing of the host's is declared or changed.

What is there already is used as it is, with the TTL it was declared with: arguments are fixed at creation, and two
replicas with different settings must not delete each other's queue for ever.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from aiormq.exceptions import ChannelAccessRefused, ChannelPreconditionFailed

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.queue_probe import DEAD_LETTER_EXCHANGE_ARGUMENT, probe_queue
from dlq_handler.domain.canary import CANARY_EXCHANGE, CANARY_QUEUE, CanaryPlan


class CanaryRefused(Exception):
    """There can be no canary on this broker; the text says why, and what to do."""


async def declare_canary(link: AdminLink, plan: CanaryPlan) -> int:
    """The TTL in force, in milliseconds. Safe to repeat, and for two replicas at once. Raises `CanaryRefused`."""
    async with link.channel(f"declare exchange {CANARY_EXCHANGE!r}") as channel:
        with _refusals():
            # Fanout: it takes every worker's key, and leaves it on the message.
            await channel.exchange_declare(CANARY_EXCHANGE, exchange_type="fanout", durable=True)
    ttl_ms = plan.ttl_ms if await _declare_queue(link, plan) else await _ttl_of_other(link, plan)
    async with link.channel(f"bind queue {CANARY_QUEUE!r}") as channel:
        with _refusals():
            await channel.queue_bind(CANARY_QUEUE, CANARY_EXCHANGE)
    return ttl_ms


async def _declare_queue(link: AdminLink, plan: CanaryPlan) -> bool:
    """False when there is one with other arguments."""
    async with link.channel(f"declare queue {CANARY_QUEUE!r}") as channel:
        try:
            with _refusals():
                await channel.queue_declare(CANARY_QUEUE, durable=True, arguments={**plan.queue_arguments})
        except _Different:
            return False
    return True


async def _ttl_of_other(link: AdminLink, plan: CanaryPlan) -> int:
    """The queue was declared by another setting: usable if what dies in it still comes to our exchange."""
    probed = await probe_queue(link, CANARY_QUEUE)
    exchange = probed.arguments.get(DEAD_LETTER_EXCHANGE_ARGUMENT) if probed is not None else None
    ttl_ms = probed.ttl_ms if probed is not None else None
    if ttl_ms is None or exchange != plan.dead_letter_exchange:
        raise CanaryRefused(
            f"queue {CANARY_QUEUE!r} has x-dead-letter-exchange={exchange!r} and x-message-ttl={ttl_ms}, wanted were "
            f"{plan.dead_letter_exchange!r} and {plan.ttl_ms}; arguments are fixed at creation: delete it, it holds "
            "nothing but canaries"
        )
    return ttl_ms


class _Different(CanaryRefused):
    """What is there was declared with other arguments."""


@contextmanager
def _refusals() -> Iterator[None]:
    """Inside a channel's block: past it, a refusal is told from a broker that is away no more."""
    try:
        yield
    except ChannelAccessRefused as refused:
        raise CanaryRefused(
            f"the broker refuses us a right ({refused}); `dlq-handler grants` prints what the user needs, "
            "dlq_handler.canary.enabled: false does without"
        ) from refused
    except ChannelPreconditionFailed as refused:
        raise _Different(
            f"it is there, but not as we declare it ({refused}); delete it, it is ours"
        ) from refused
