"""One incarnation of consuming: a connection, its channel, and the letters that came over it.

A letter is read where it arrives, so that no more than its fields and the beginning of its body are kept.
When the incarnation is lost, for whatever reason, it stays lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.connection import Connection
from dlq_handler.broker.delivery import Delivery
from dlq_handler.broker.direct_channel import BodyLimit, ContentMethod, DirectChannel, open_direct_channel
from dlq_handler.broker.tolerant_headers import UndecodableProperties
from dlq_handler.broker.window import Window
from dlq_handler.domain.read_dead_letter import CutBody, RawLetter, read_dead_letter
from dlq_handler.domain.read_prefix import PREFIX_BYTES
from dlq_handler.errors import Unavailable
from dlq_handler.waiting import first_of


class Intake:
    def __init__(
        self,
        connection: Connection,
        window: Window,
        *,
        body_limit_bytes: int,
        max_body_bytes: int,
        key_prefix: str = "",
    ) -> None:
        self.window = window
        self.lost: str | None = None
        self._connection = connection
        self._body_limit_bytes, self._key_prefix = body_limit_bytes, key_prefix
        self._body_limit = BodyLimit(max_bytes=max_body_bytes, kept_bytes=PREFIX_BYTES)
        self._channel: DirectChannel | None = None
        self._consumer_tag = ""
        self._consume: Callable[..., Awaitable[object]] | None = None
        self._wanted = 1
        self._wake = asyncio.Event()

    async def start(self, queue: str, *, prefetch: int, consumer_tag: str, priority: int) -> int:
        """The number of messages that were ready before any was delivered here."""
        self._channel = channel = await open_direct_channel(
            self._connection, on_content=self._arrive, on_lost=self.lose, body_limit=self._body_limit
        )
        channel.on_consumer_cancel_callbacks.add(
            lambda _: self.lose(f"the broker ended the consuming of {queue!r}: was the queue deleted?")
        )
        self._consume = partial(
            channel.basic_consume, queue, _never_called, arguments={"x-priority": priority}
        )
        self._consumer_tag = consumer_tag
        declared = await channel.queue_declare(queue, passive=True)
        await channel.basic_qos(prefetch_count=prefetch)
        await self._consume(consumer_tag=consumer_tag)
        return declared.message_count or 0

    async def widen(self, prefetch: int) -> None:
        """Let the broker deliver more at once. What it has delivered stays unsettled, on the same channel."""
        channel = self._channel
        # While reading is stopped no answer is read either: the next batch asks again.
        if channel is None or self._consume is None or self.lost is not None or not channel.is_reading:
            return
        # A prefetch counts for consumers that begin after it, so another consumer takes over, and the queue always has
        # one. Not with the same tag: a quorum queue of RabbitMQ 3.10 then ends the connection with an internal error.
        before, self._consumer_tag = self._consumer_tag, self._consumer_tag + "+"
        await channel.basic_qos(prefetch_count=prefetch)
        await self._consume(consumer_tag=self._consumer_tag)
        await channel.basic_cancel(before)
        self.window.prefetch = prefetch

    async def close(self) -> None:
        """Give back what is not settled."""
        self.lose("closed")
        # While reading is stopped the broker's answer is not read either: aiormq waits two seconds for it.
        await self._connection.end()

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        self._wake.set()

    async def wait_for(self, wanted: int, stop: asyncio.Event, give_up_at: float | None) -> None:
        """Until so many letters are ready, no more can come, the time is over, or it is time to stop."""
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
            await first_of(self._wake, stop, None if wake_at is None else wake_at - now)

    def put_off(self, deliveries: Iterable[Delivery], until: float) -> None:
        self.window.put_off(deliveries, until)
        # Whoever waits for letters went to sleep without knowing of these: without a call they would wait for the next
        # arrival, for ever on a quiet night.
        self._wake.set()

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> int:
        if self._channel is None or self.lost is not None:
            return 0
        before = self.window.outstanding
        plan = self.window.settle(deliveries)
        acknowledged = before - self.window.outstanding
        acks = [Basic.Ack(delivery_tag=tag) for tag in plan.singles]
        if plan.multiple_up_to is not None:
            acks.insert(0, Basic.Ack(delivery_tag=plan.multiple_up_to, multiple=True))
        if acks:
            await self._channel.send(self._channel.marshal(*acks))
        if not self.window.is_over_bytes:
            self._channel.go_on_reading()
        return acknowledged

    def _arrive(self, method: ContentMethod, header: ContentHeader, body: bytes, cut: CutBody | None) -> None:
        # What still comes while we close is the broker's again as soon as we are gone.
        if self.lost is not None or not isinstance(method, Basic.Deliver) or method.delivery_tag is None:
            return
        letter = read_dead_letter(
            raw_letter(method, header, body, cut),
            body_limit_bytes=self._body_limit_bytes,
            key_prefix=self._key_prefix,
        )
        self.window.arrive(method.delivery_tag, letter)
        if self.window.is_over_bytes and self._channel is not None:
            self._channel.stop_reading()
        if self.window.arrived >= self._wanted or self.window.is_full:
            self._wake.set()


def raw_letter(
    deliver: Basic.Deliver, header: ContentHeader, body: bytes, cut: CutBody | None = None
) -> RawLetter:
    properties = header.properties
    flaw = properties if isinstance(properties, UndecodableProperties) else None
    return RawLetter(
        exchange=deliver.exchange,
        routing_key=deliver.routing_key or "",
        redelivered=deliver.redelivered,
        message_id=properties.message_id,
        correlation_id=properties.correlation_id,
        headers=properties.headers or {},
        body=body,
        cut=cut,
        undecodable=flaw.reason if flaw else None,
        raw_properties=flaw.raw if flaw else b"",
    )


async def _never_called(_: DeliveredMessage) -> None:
    """aiormq wants a callback for each consumer; our channel takes the deliveries before it looks for one."""
