"""Take dead letters from the intake queue in batches, and settle them when told.

Promises: each letter is read on arrival, so that no more than its fields and the beginning of its body are kept; what
is held is bounded by prefetch and by bytes; a lost channel is `Unavailable` from `next_batch`, at once; tags of a
lost channel are forgotten, since the broker redelivers their letters and the record's key absorbs the repeat.
Never: nacks, works on a letter in a callback, declares or re-declares the queue, reconnects by itself.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aio_pika.abc import AbstractConnection
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import ChannelNotFoundEntity
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.connection import BrokerAddress, broker_errors, close_connection
from dlq_handler.broker.delivery import Delivery
from dlq_handler.broker.direct_channel import ContentMethod, DirectChannel, open_direct_channel
from dlq_handler.broker.tolerant_headers import UndecodableProperties
from dlq_handler.broker.window import Window
from dlq_handler.domain.dead_letter import DeadLetter
from dlq_handler.domain.read_dead_letter import RawLetter, read_dead_letter
from dlq_handler.errors import Unavailable


class QueueMissing(Unavailable):
    """The intake queue does not exist (any more)."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            "broker", f"queue {queue!r} does not exist; `dlq-handler topology apply` declares it"
        )
        self.queue = queue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """As of this instant. `ready` leaves out what consumers hold."""

    ready: int
    consumers: int


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
        consumer_priority: int = 0,
        consumer_tag: str = "dlq-handler",
        call_timeout_seconds: float = 10.0,
    ) -> None:
        self.queue = queue
        self.incarnation = 0
        self._address = address
        self._prefetch, self._max_bytes, self._body_limit_bytes = prefetch, max_bytes, body_limit_bytes
        self._batch_size, self._batch_wait_seconds = batch_size, batch_wait_seconds
        self._consumer_priority, self._consumer_tag = consumer_priority, consumer_tag
        self._call_timeout_seconds = call_timeout_seconds
        self._intake: _Intake | None = None

    @property
    def is_open(self) -> bool:
        return self._intake is not None

    @property
    def is_consuming(self) -> bool:
        """Registered with the broker, and neither cancelled nor lost since."""
        return self._intake is not None and self._intake.lost is None

    @property
    def held_bytes(self) -> int:
        return self._intake.window.held_bytes if self._intake else 0

    @property
    def outstanding(self) -> int:
        """Letters delivered and not settled."""
        return self._intake.window.outstanding if self._intake else 0

    async def open(self) -> None:
        """Start consuming over a new connection. The queue must exist."""
        await self.close()
        connection = await self._address.connect("intake")
        try:
            async with broker_errors(f"consume {self.queue!r}"), asyncio.timeout(self._call_timeout_seconds):
                await self._count(connection)
                self.incarnation += 1
                window = Window(
                    incarnation=self.incarnation, prefetch=self._prefetch, max_bytes=self._max_bytes
                )
                intake = _Intake(connection, window, body_limit_bytes=self._body_limit_bytes)
                await intake.start(
                    self.queue,
                    prefetch=self._prefetch,
                    consumer_tag=self._consumer_tag,
                    priority=self._consumer_priority,
                )
        except BaseException:
            await close_connection(connection)
            raise
        self._intake = intake

    async def close(self) -> None:
        """Stop consuming. Every letter that is not settled goes back to the queue. Safe to call at any time."""
        intake, self._intake = self._intake, None
        if intake is not None:
            await intake.close()

    def give_up(self, why: str) -> None:
        """Let the next `next_batch` end as if the broker had cancelled us."""
        if self._intake is not None:
            self._intake.lose(why)

    async def next_batch(
        self, stop: asyncio.Event | None = None, timeout_seconds: float | None = None
    ) -> list[Delivery]:
        """Wait for a first letter, then a short while for more; no wait when no more can come.

        Empty when `stop` is set or the time is over before a letter came.
        """
        intake = self._open_intake()
        stop = stop or asyncio.Event()
        now = asyncio.get_running_loop().time
        give_up_at = None if timeout_seconds is None else now() + timeout_seconds
        await intake.wait_for(1, stop, give_up_at)
        if intake.window.ready(now()) == 0:
            return []
        await intake.wait_for(self._batch_size, stop, now() + self._batch_wait_seconds)
        return intake.window.take(self._batch_size, now())

    def hold_over(self, deliveries: Iterable[Delivery], delay_seconds: float) -> None:
        """Leave them unsettled and give them again, in order, in a batch after the delay."""
        if self._intake is not None:
            until = asyncio.get_running_loop().time() + delay_seconds
            self._intake.window.put_off(deliveries, until)

    async def settle(self, deliveries: Sequence[Delivery]) -> int:
        """Acknowledge what this channel delivered; the number acknowledged.

        Never fails: where the channel is gone the letters come back, and `next_batch` tells of the loss.
        """
        intake = self._intake
        if intake is None or intake.lost is not None:
            return 0
        try:
            async with broker_errors("acknowledge"), asyncio.timeout(self._call_timeout_seconds):
                return await intake.acknowledge(deliveries)
        except Unavailable as error:
            intake.lose(error.what)
            return 0

    async def look(self) -> QueueCounts:
        """Ask the broker, on a fresh channel, what it knows of the queue. Works while we do not consume, too."""
        intake = self._intake
        doing = f"look at queue {self.queue!r}"
        if intake is not None and intake.lost is None and intake.channel.is_reading:
            async with broker_errors(doing), asyncio.timeout(self._call_timeout_seconds):
                return await self._count(intake.connection)
        connection = await self._address.connect("look")
        try:
            async with broker_errors(doing), asyncio.timeout(self._call_timeout_seconds):
                return await self._count(connection)
        finally:
            await close_connection(connection)

    async def _count(self, connection: AbstractConnection) -> QueueCounts:
        # A channel of its own: the broker closes it when the queue does not exist.
        async with connection.channel(publisher_confirms=False) as channel:
            underlay = await channel.get_underlay_channel()
            try:
                answer = await underlay.queue_declare(self.queue, passive=True)
            except ChannelNotFoundEntity as error:
                raise QueueMissing(self.queue) from error
            return QueueCounts(ready=answer.message_count or 0, consumers=answer.consumer_count or 0)

    def _open_intake(self) -> "_Intake":
        if self._intake is None:
            raise Unavailable("broker", f"the intake of {self.queue!r} is not open")
        return self._intake


class _Intake:
    """One incarnation: a connection, its channel, and what came over it."""

    channel: DirectChannel

    def __init__(self, connection: AbstractConnection, window: Window, *, body_limit_bytes: int) -> None:
        self.connection, self.window = connection, window
        self._body_limit_bytes = body_limit_bytes
        self.lost: str | None = None
        self._wanted = 1
        self._wake = asyncio.Event()

    async def start(self, queue: str, *, prefetch: int, consumer_tag: str, priority: int) -> None:
        self.channel = await open_direct_channel(self.connection, on_content=self._arrive)
        self.channel.closing.add_done_callback(self._closed)
        self.channel.on_consumer_cancel_callbacks.add(
            lambda _: self.lose(
                f"the broker cancelled the consumer of {queue!r}: the queue was deleted or moved"
            )
        )
        await self.channel.basic_qos(prefetch_count=prefetch)
        await self.channel.basic_consume(
            queue, _unused, consumer_tag=consumer_tag, arguments={"x-priority": priority}
        )

    async def close(self) -> None:
        self.lose("closed")
        # While reading is stopped nobody would read the broker's answer to our close.
        self.channel.go_on_reading()
        await close_connection(self.connection)

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        self._wake.set()

    async def wait_for(self, wanted: int, stop: asyncio.Event, give_up_at: float | None) -> None:
        """Until so many letters are ready, or no more can come, or the time is over, or it is time to stop."""
        loop = asyncio.get_running_loop()
        while True:
            if self.lost is not None:
                raise Unavailable("broker", self.lost)
            now = loop.time()
            ready = self.window.ready(now)
            if ready >= wanted or (ready and self.window.is_full) or stop.is_set():
                return
            if give_up_at is not None and now >= give_up_at:
                return
            self._wanted = wanted
            self._wake.clear()
            wake_at = min((at for at in (give_up_at, self.window.next_due()) if at is not None), default=None)
            await _wait_for_either(self._wake, stop, None if wake_at is None else wake_at - now)

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> int:
        before = self.window.outstanding
        plan = self.window.settle(deliveries)
        acks = [Basic.Ack(delivery_tag=tag) for tag in plan.singles]
        if plan.multiple_up_to is not None:
            acks.insert(0, Basic.Ack(delivery_tag=plan.multiple_up_to, multiple=True))
        if acks:
            await self.channel.send(self.channel.marshal(*acks))
        if not self.window.is_over_bytes:
            self.channel.go_on_reading()
        return before - self.window.outstanding

    def _arrive(self, method: ContentMethod, header: ContentHeader, body: bytes) -> None:
        if self.lost is not None or not isinstance(method, Basic.Deliver) or method.delivery_tag is None:
            return
        self.window.arrive(method.delivery_tag, _read(method, header, body, self._body_limit_bytes))
        if self.window.is_over_bytes:
            self.channel.stop_reading()
        if self.window.is_full or self.window.arrived >= self._wanted:
            self._wake.set()

    def _closed(self, closing: asyncio.Future[None]) -> None:
        error = None if closing.cancelled() else closing.exception()
        self.lose(
            f"the channel was closed: {type(error).__name__}: {error}" if error else "the channel was closed"
        )


def _read(deliver: Basic.Deliver, header: ContentHeader, body: bytes, body_limit_bytes: int) -> DeadLetter:
    properties = header.properties
    flaw = properties if isinstance(properties, UndecodableProperties) else None
    return read_dead_letter(
        RawLetter(
            exchange=deliver.exchange,
            routing_key=deliver.routing_key or "",
            redelivered=deliver.redelivered,
            message_id=properties.message_id,
            correlation_id=properties.correlation_id,
            headers=properties.headers or {},
            body=body,
            undecodable=flaw.reason if flaw else None,
            raw_properties=flaw.raw if flaw else b"",
        ),
        body_limit_bytes=body_limit_bytes,
    )


async def _unused(_: DeliveredMessage) -> None:
    """aiormq wants a callback; deliveries never get as far as to call it."""


async def _wait_for_either(one: asyncio.Event, other: asyncio.Event, seconds: float | None) -> None:
    waits = [asyncio.ensure_future(one.wait()), asyncio.ensure_future(other.wait())]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
