"""Take dead letters from the intake queue in batches, and settle them when told.

Promises: what is held is bounded by prefetch and by bytes; a lost channel is `Unavailable` from `next_batch`,
at once; tags of a lost channel are forgotten, since the broker redelivers their letters and the record's key
absorbs the repeat. Never: nacks, works on a letter in a callback, declares the queue, reconnects by itself.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

from aiormq.exceptions import ChannelNotFoundEntity

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.connection import BrokerAddress, broker_errors
from dlq_handler.broker.delivery import Delivery
from dlq_handler.broker.intake import Intake
from dlq_handler.broker.intake_drain import IntakeDrain
from dlq_handler.broker.queue_probe import QueueCounts, count
from dlq_handler.broker.window import Window
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable


class QueueMissing(Unavailable):
    """The intake queue does not exist (any more)."""

    def __init__(self, queue: str) -> None:
        super().__init__("broker", f"no queue {queue!r}; `dlq-handler topology apply` declares it")
        self.queue = queue


class DeadLetterSource:
    def __init__(
        self,
        address: BrokerAddress,
        *,
        queue: str,
        prefetch: int,
        batch_size: int,
        batch_wait_seconds: float,
        max_bytes: int,
        body_limit_bytes: int,
        max_body_bytes: int = 1_048_576,
        key_prefix: str = "",
        consumer_priority: int = 0,
        consumer_tag: str = "dlq-handler",
        call_timeout_seconds: float = 10.0,
    ) -> None:
        self.queue = queue
        self.incarnation = 0
        self.drain = IntakeDrain()
        self._address = address
        self._prefetch, self._max_bytes, self._body_limit_bytes = prefetch, max_bytes, body_limit_bytes
        self._max_body_bytes, self._key_prefix = max_body_bytes, key_prefix
        self._batch_size, self._batch_wait_seconds = batch_size, batch_wait_seconds
        self._consumer_priority, self.consumer_tag = consumer_priority, consumer_tag
        """What the tags of all its consumers begin with."""
        self._call_timeout_seconds = call_timeout_seconds
        self._intake: Intake | None = None
        self._opened_at = 0.0
        self._widening = asyncio.Lock()
        # Looks go over a connection of their own: the other one is not read while we hold too much.
        self._outlook = AdminLink(address, call_timeout_seconds=call_timeout_seconds)

    @property
    def is_open(self) -> bool:
        """Between `open` and `close`, whether or not the channel is still there."""
        return self._intake is not None

    @property
    def is_consuming(self) -> bool:
        """Registered with the broker, and neither cancelled nor lost since."""
        return self._intake is not None and self._intake.lost is None

    @property
    def consuming_seconds(self) -> float:
        """For how long without a break; 0 when we are not."""
        return monotonic_seconds() - self._opened_at if self.is_consuming else 0.0

    @property
    def outstanding(self) -> int:
        """Letters delivered and not settled."""
        return self._intake.window.outstanding if self._intake else 0

    @property
    def unacknowledged(self) -> int | None:
        """Dead letters that this replica holds; None: it does not consume."""
        return self.outstanding if self.is_consuming else None

    @property
    def oldest_death(self) -> datetime | None:
        """Of the letters that are delivered and not settled; None when nobody knows."""
        return self._intake.window.oldest_death if self._intake else None

    @property
    def held_bytes(self) -> int:
        return self._intake.window.held_bytes if self._intake else 0

    @property
    def prefetch(self) -> int:
        """How many unsettled dead letters the broker delivers at most; 0 while the intake is closed."""
        return self._intake.window.prefetch if self._intake else 0

    async def open(self, *, prefetch: int | None = None) -> None:
        """Start consuming over a new connection. `QueueMissing` when there is no such queue.

        `prefetch`: fewer at once than configured, until `widen`.
        """
        prefetch = min(prefetch or self._prefetch, self._prefetch)
        await self._close_intake()
        connection = await self._address.connect("intake", is_again=self.incarnation > 0)
        self.incarnation += 1
        window = Window(incarnation=self.incarnation, prefetch=prefetch, max_bytes=self._max_bytes)
        intake = Intake(
            connection,
            window,
            body_limit_bytes=self._body_limit_bytes,
            max_body_bytes=self._max_body_bytes,
            key_prefix=self._key_prefix,
        )
        try:
            async with broker_errors(f"consume {self.queue!r}"), asyncio.timeout(self._call_timeout_seconds):
                try:
                    ready = await intake.start(
                        self.queue,
                        prefetch=prefetch,
                        consumer_tag=self.consumer_tag,
                        priority=self._consumer_priority,
                    )
                except ChannelNotFoundEntity as error:
                    raise QueueMissing(self.queue) from error
        except BaseException:
            await intake.close()
            raise
        self._intake, self._opened_at = intake, monotonic_seconds()
        self.drain.opened(ready=ready, prefetch=self._prefetch)

    async def widen(self, factor: int) -> None:
        """Have so many times as many delivered at once, up to the configured prefetch.

        Never fails: where the channel is gone, `next_batch` raises.
        """
        intake = self._intake
        if intake is None:
            return
        async with self._widening:
            if intake.lost is not None or intake.window.prefetch >= self._prefetch:
                return
            try:
                async with broker_errors("widen"), asyncio.timeout(self._call_timeout_seconds):
                    await intake.widen(min(self._prefetch, intake.window.prefetch * factor))
            except Unavailable as error:
                intake.lose(error.what)

    async def close(self) -> None:
        """Stop consuming: every letter that is not settled goes back to the queue. Safe at any time."""
        await self._close_intake()
        await self._outlook.close()

    def give_up(self, why: str) -> None:
        """Let `next_batch` end as if the broker had sent us away."""
        if self._intake is not None:
            self._intake.lose(why)

    async def next_batch(
        self, stop: asyncio.Event | None = None, timeout_seconds: float | None = None
    ) -> list[Delivery]:
        """Wait for a first letter, then a short while for more; no wait when no more can come.

        Empty when `stop` is set or the time is over before a letter came.
        """
        if self._intake is None:
            raise Unavailable("broker", f"the intake of {self.queue!r} is not open")
        intake, stop, now = self._intake, stop or asyncio.Event(), asyncio.get_running_loop().time
        await intake.wait_for(1, stop, None if timeout_seconds is None else now() + timeout_seconds)
        if stop.is_set() or intake.window.ready(now()) == 0:
            return []
        await intake.wait_for(self._batch_size, stop, now() + self._batch_wait_seconds)
        return intake.window.take(self._batch_size, now())

    def hold_over(self, deliveries: Iterable[Delivery], delay_seconds: float) -> None:
        """Leave them unsettled, and give them again, in order, in a batch after the delay."""
        if self._intake is not None:
            self._intake.put_off(deliveries, asyncio.get_running_loop().time() + delay_seconds)

    async def settle(self, deliveries: Sequence[Delivery]) -> int:
        """Acknowledge what this channel delivered; the number acknowledged.

        Never fails: where the channel is gone the letters come back, and `next_batch` tells of the loss.
        """
        intake = self._intake
        if intake is None:
            return 0
        try:
            async with broker_errors("acknowledge"), asyncio.timeout(self._call_timeout_seconds):
                acknowledged = await intake.acknowledge(deliveries)
        except Unavailable as error:
            intake.lose(error.what)
            return 0
        self.drain.acknowledged(acknowledged)
        return acknowledged

    async def look(self) -> QueueCounts:
        """Ask the broker, on a fresh channel, what it knows of the queue; also while we do not consume."""
        counts = await count(self._outlook, self.queue)
        if counts is None:
            raise QueueMissing(self.queue)
        self.drain.counted(ready=counts.ready, outstanding=self.outstanding)
        return counts

    async def _close_intake(self) -> None:
        intake, self._intake = self._intake, None
        if intake is not None:
            self.drain.closed()
            await intake.close()
