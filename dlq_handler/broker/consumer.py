"""Take messages from a queue in batches, and acknowledge them when the caller asks for it.

Promises: memory is bounded by prefetch and by bytes. `next_batch` raises `Unavailable` as soon as the channel is lost.
Tags of a lost channel are ignored: the broker delivers their messages again.
Never: rejects a message, decides in a callback, declares the queue, reconnects by itself.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Generic

from aiormq.exceptions import ChannelNotFoundEntity

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_queue
from dlq_handler.broker.client.broker_errors import broker_errors
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer_session import ConsumerSession
from dlq_handler.broker.delivery import Delivery, Item, RawMessage
from dlq_handler.broker.delivery_window import DeliveryWindow
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable


class DrainTracker:
    """Tracks whether the dead letters that were ready when the intake opened have been acknowledged.

    Until then an execution that seems stale may have a dead letter in the queue, which is better evidence. Messages
    that other consumers take are known from the broker's count of the queue.
    """

    def __init__(self, now: Callable[[], float] = monotonic_seconds) -> None:
        self._now = now
        self._undrained_since: float | None = now()
        self._is_open = False
        self._unacknowledged = 0
        self._prefetch = 0
        self._was_long = False
        self._wakes: list[asyncio.Event] = []

    @property
    def undrained_seconds(self) -> float | None:
        """Time since the intake was last drained; None: it is drained now."""
        return None if self._undrained_since is None else self._now() - self._undrained_since

    def wake_when_drained(self, wake: asyncio.Event) -> None:
        self._wakes.append(wake)

    def note_opened(self, *, ready: int, prefetch: int) -> None:
        self._is_open, self._unacknowledged, self._prefetch = True, ready, prefetch
        self._was_long = ready >= prefetch
        self.note_acknowledged(0)

    def note_acknowledged(self, count: int) -> None:
        self._unacknowledged -= count
        if self._is_open and self._unacknowledged <= 0:
            self._note_drained()

    def note_counted(self, *, ready: int, outstanding: int) -> None:
        """`ready`: the broker's count of the queue. `outstanding`: unacknowledged deliveries of this replica."""
        # Unacknowledged deliveries count too: their executions are not decided yet.
        is_short = self._was_long and ready + outstanding < self._prefetch
        if self._is_open and (is_short or ready + outstanding == 0):
            self._note_drained()

    def note_closed(self) -> None:
        self._is_open = False
        if self._undrained_since is None:
            self._undrained_since = self._now()

    def _note_drained(self) -> None:
        if self._undrained_since is not None:
            self._undrained_since = None
            for wake in self._wakes:
                wake.set()


class QueueMissing(Unavailable):
    """The queue does not exist, or no longer."""

    def __init__(self, queue: str) -> None:
        super().__init__("broker", f"no queue {queue!r}; `dlq-handler topology apply` declares it")
        self.queue = queue


class QueueConsumer(Generic[Item]):
    def __init__(
        self,
        address: BrokerAddress,
        admin: AdminConnection,
        *,
        queue: str,
        prefetch: int,
        batch_size: int,
        batch_wait_seconds: float,
        max_bytes: int,
        read: Callable[[RawMessage], Item],
        max_body_bytes: int,
        consumer_priority: int = 0,
        consumer_tag: str = "dlq-handler",
        call_timeout_seconds: float = 10.0,
    ) -> None:
        """`admin` counts the queue. `read` is called as each message arrives.

        It must not raise: an error would end the reader of the socket.
        """
        self.queue = queue
        self.incarnation = 0
        self.drain = DrainTracker()
        self._address = address
        self._prefetch, self._max_bytes = prefetch, max_bytes
        self._max_body_bytes, self._read = max_body_bytes, read
        self._batch_size, self._batch_wait_seconds = batch_size, batch_wait_seconds
        self._consumer_priority, self.consumer_tag = consumer_priority, consumer_tag
        """The tags of all its consumers begin with this."""
        self._call_timeout_seconds = call_timeout_seconds
        self._session: ConsumerSession[Item] | None = None
        self._opened_at = 0.0
        self._growing = asyncio.Lock()
        # Counts need another connection: the consuming one is not read while the window is full.
        self._admin = admin

    @property
    def is_open(self) -> bool:
        """Between `open` and `close`, also if the channel was lost."""
        return self._session is not None

    @property
    def is_consuming(self) -> bool:
        """The broker has registered the consumer, and it was neither cancelled nor lost since."""
        return self._session is not None and self._session.lost is None

    @property
    def consuming_seconds(self) -> float:
        """Duration without an interruption; 0 while it does not consume."""
        return monotonic_seconds() - self._opened_at if self.is_consuming else 0.0

    @property
    def outstanding(self) -> int:
        """Number of unacknowledged deliveries."""
        return self._session.window.outstanding if self._session else 0

    @property
    def unacknowledged(self) -> int | None:
        """Number of messages that this replica holds; None: it does not consume."""
        return self.outstanding if self.is_consuming else None

    @property
    def oldest_death(self) -> datetime | None:
        """Earliest time of death among the unacknowledged deliveries; None: unknown."""
        return self._session.window.oldest_death if self._session else None

    @property
    def held_bytes(self) -> int:
        return self._session.window.held_bytes if self._session else 0

    @property
    def prefetch(self) -> int:
        """Maximum number of unacknowledged deliveries; 0 while it is closed."""
        return self._session.window.prefetch if self._session else 0

    async def open(self, *, prefetch: int | None = None) -> None:
        """Start consuming over a new connection. Raises `QueueMissing`, `Unavailable`.

        `prefetch`: lower than configured, until `grow_prefetch`.
        """
        prefetch = min(prefetch or self._prefetch, self._prefetch)
        await self._close_session()
        connection = await self._address.connect("intake", is_again=self.incarnation > 0)
        self.incarnation += 1
        window = DeliveryWindow[Item](
            incarnation=self.incarnation, prefetch=prefetch, max_bytes=self._max_bytes
        )
        session = ConsumerSession(
            connection,
            window,
            queue=self.queue,
            priority=self._consumer_priority,
            max_body_bytes=self._max_body_bytes,
            read=self._read,
        )
        try:
            async with broker_errors(f"consume {self.queue!r}"), asyncio.timeout(self._call_timeout_seconds):
                try:
                    ready = await session.start(self.consumer_tag)
                except ChannelNotFoundEntity as error:
                    raise QueueMissing(self.queue) from error
        except BaseException:
            await session.close()
            raise
        self._session, self._opened_at = session, monotonic_seconds()
        self.drain.note_opened(ready=ready, prefetch=self._prefetch)

    async def grow_prefetch(self, factor: int) -> None:
        """Multiply the prefetch by this factor, up to the configured one. Never fails: `next_batch` raises instead."""
        session = self._session
        if session is None:
            return
        async with self._growing:
            if session.lost is not None or session.window.prefetch >= self._prefetch:
                return
            try:
                async with broker_errors("raise the prefetch"), asyncio.timeout(self._call_timeout_seconds):
                    await session.grow_prefetch(min(self._prefetch, session.window.prefetch * factor))
            except Unavailable as error:
                session.lose(error.what)

    async def close(self) -> None:
        """Stop consuming. All unacknowledged messages return to the queue. Safe at any time."""
        await self._close_session()

    def give_up(self, reason: str) -> None:
        """Treat the channel as lost: `next_batch` raises `Unavailable` with this reason."""
        if self._session is not None:
            self._session.lose(reason)

    async def next_batch(
        self, stop: asyncio.Event | None = None, timeout_seconds: float | None = None
    ) -> list[Delivery[Item]]:
        """Wait for a first message, then a short while for more, unless no more can arrive.

        Empty when `stop` is set or the time is over before one arrived.
        """
        if self._session is None:
            raise Unavailable("broker", f"the consumer of {self.queue!r} is not open")
        session, stop, now = self._session, stop or asyncio.Event(), asyncio.get_running_loop().time
        await session.wait_for(1, stop, None if timeout_seconds is None else now() + timeout_seconds)
        if stop.is_set() or session.window.ready(now()) == 0:
            return []
        await session.wait_for(self._batch_size, stop, now() + self._batch_wait_seconds)
        return session.window.take(self._batch_size, now())

    def postpone(self, deliveries: Iterable[Delivery[Item]], delay_seconds: float) -> None:
        """Keep them unacknowledged, and return them again, in order, in a batch after the delay."""
        if self._session is not None:
            self._session.postpone(deliveries, asyncio.get_running_loop().time() + delay_seconds)

    async def acknowledge(self, deliveries: Sequence[Delivery[Item]]) -> int:
        """Returns the number acknowledged: deliveries of an earlier channel are ignored.

        Never fails: after a lost channel the messages are delivered again, and `next_batch` raises.
        """
        session = self._session
        if session is None:
            return 0
        try:
            async with broker_errors("acknowledge"), asyncio.timeout(self._call_timeout_seconds):
                acknowledged = await session.acknowledge(deliveries)
        except Unavailable as error:
            session.lose(error.what)
            return 0
        self.drain.note_acknowledged(acknowledged)
        return acknowledged

    async def count(self) -> QueueCounts:
        """Ask the broker for the queue's counts, on a new channel; also while it does not consume."""
        counts = await count_queue(self._admin, self.queue)
        if counts is None:
            raise QueueMissing(self.queue)
        self.drain.note_counted(ready=counts.ready, outstanding=self.outstanding)
        return counts

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self.drain.note_closed()
            await session.close()
