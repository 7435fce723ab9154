"""The consumers of one queue, and the messages that wait in it, read from the broker. Changes nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlq_handler.errors import Unavailable

if TYPE_CHECKING:
    # `status` reads `Consumers` from the database: the libraries of the broker would take as long as its answer.
    from dlq_handler.broker.admin.management_api import ManagementApi
    from dlq_handler.broker.admin.queue_probe import QueueCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumers:
    count: int
    ready: int
    tags: tuple[str, ...] | None = None
    """Consumer tags of all of them. None: unknown."""
    lists_fewer: bool = False
    """The management API answers, but lists fewer consumers than there are."""
    unacknowledged: int | None = 0
    """Messages that consumers hold. None: unknown, because the management API is not available."""
    own_unacknowledged: int = 0
    """Those of them that this replica holds; 0 in a command, which holds none."""
    has_canaries: bool = False
    """True: canaries are sent to this queue too, and its own count includes them."""

    @property
    def waiting(self) -> int:
        """Messages in the queue, ready or unacknowledged; at least this many where the second number is unknown."""
        return self.ready + max(self.unacknowledged or 0, self.own_unacknowledged)


async def read_consumers(
    count: Callable[[str], Awaitable["QueueCounts | None"]],
    api: "ManagementApi",
    queue: str,
    *,
    own_unacknowledged: Callable[[], int | None] = lambda: None,
    has_canaries: bool = False,
) -> Consumers | None:
    """None: there is no such queue. `count(queue)` asks the broker by AMQP.

    `own_unacknowledged()`: messages that this process holds; None: it does not consume. `has_canaries`: canaries are
    sent through this queue.
    """
    counts = await count(queue)
    if counts is None:
        return None
    own = own_unacknowledged()
    try:
        tags = await api.consumer_tags(queue) if counts.consumers else ()
    except Unavailable:
        tags = None
    # A user without the tag 'monitoring' sees only its own consumers, and the API lists new consumers late.
    lists_fewer = tags is not None and len(tags) < counts.consumers
    return Consumers(
        count=counts.consumers,
        ready=counts.ready,
        tags=None if lists_fewer else tags,
        lists_fewer=lists_fewer,
        unacknowledged=await count_unacknowledged(api, queue, counts.consumers, own=own),
        own_unacknowledged=own or 0,
        has_canaries=has_canaries,
    )


async def count_unacknowledged(
    api: "ManagementApi", queue: str, consumers: int, *, own: int | None
) -> int | None:
    """Messages that all consumers of the queue hold; None: unknown.

    Without a consumer there are none. A replica that is the only consumer knows its own number better than the
    management API, whose numbers are seconds old.
    """
    if consumers == 0 or (consumers == 1 and own is not None):
        return own or 0
    try:
        return await api.unacknowledged(queue)
    except Unavailable:
        return None
