"""Consume over one connection and one channel until it is lost. A lost session stays lost; its user opens another.

A message is read where it arrives, so only the item that `read` makes of it is kept.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Generic

from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.client.connection import Connection
from dlq_handler.broker.client.decoders import UndecodableProperties
from dlq_handler.broker.client.direct_channel import (
    BodyLimit,
    ContentMethod,
    DirectChannel,
    open_direct_channel,
)
from dlq_handler.broker.delivery import CutBody, Delivery, Item, RawMessage
from dlq_handler.broker.delivery_window import DeliveryWindow
from dlq_handler.errors import Unavailable
from dlq_handler.loop import first_of

PREFIX_BYTES = 65_536
"""Of a body above the limit this much is kept and read."""


class ConsumerSession(Generic[Item]):
    def __init__(
        self,
        connection: Connection,
        window: DeliveryWindow[Item],
        *,
        queue: str,
        priority: int,
        max_body_bytes: int,
        read: Callable[[RawMessage], Item],
    ) -> None:
        self.window = window
        self.lost: str | None = None
        self._connection = connection
        self._queue, self._priority, self._read = queue, priority, read
        self._body_limit = BodyLimit(max_bytes=max_body_bytes, kept_bytes=PREFIX_BYTES)
        self._channel: DirectChannel | None = None
        self._consumer_tag = ""
        self._wanted = 1
        self._wake = asyncio.Event()

    async def start(self, consumer_tag: str) -> int:
        """Returns the number of messages that were ready before the first delivery."""
        self._channel = channel = await open_direct_channel(
            self._connection, on_content=self._receive, on_lost=self.lose, body_limit=self._body_limit
        )
        declared = await channel.queue_declare(self._queue, passive=True)
        await self._consume(channel, consumer_tag, self.window.prefetch)
        return declared.message_count or 0

    async def grow_prefetch(self, prefetch: int) -> None:
        """Let the broker deliver more at once. Earlier deliveries stay unacknowledged, on the same channel."""
        channel, before = self._channel, self._consumer_tag
        # While reading is stopped no reply is read either: the next batch tries again.
        if channel is None or self.lost is not None or not channel.is_reading:
            return
        # A prefetch holds for consumers that start after it. So another consumer takes over, and the queue always has
        # one. Not with the same tag: a quorum queue of RabbitMQ 3.10 then ends the connection with an internal error.
        await self._consume(channel, f"{before}+", prefetch)
        await channel.basic_cancel(before)
        self.window.prefetch = prefetch

    async def _consume(self, channel: DirectChannel, consumer_tag: str, prefetch: int) -> None:
        await channel.basic_qos(prefetch_count=prefetch)
        self._consumer_tag = consumer_tag
        await channel.consume(
            self._queue, consumer_tag=consumer_tag, priority=self._priority, on_cancel=self._lose_consumer
        )

    def _lose_consumer(self, _: object) -> None:
        self.lose(f"the broker ended the consumer of {self._queue!r}: was the queue deleted?")

    async def close(self) -> None:
        """Return all unacknowledged messages to the queue."""
        self.lose("closed")
        # While reading is stopped the broker's reply is not read either: aiormq waits two seconds for it.
        await self._connection.end()

    def lose(self, reason: str) -> None:
        self.lost = self.lost or reason
        self._wake.set()

    async def wait_for(self, wanted: int, stop: asyncio.Event, give_up_at: float | None) -> None:
        """Wait until `wanted` deliveries are ready, no more can arrive, the time is over, or `stop` is set."""
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

    def postpone(self, deliveries: Iterable[Delivery[Item]], until: float) -> None:
        self.window.postpone(deliveries, until)
        # A waiting `wait_for` does not know of these yet. Without a wake-up they would wait for the next arrival, which
        # may never come.
        self._wake.set()

    async def acknowledge(self, deliveries: Sequence[Delivery[Item]]) -> int:
        if self._channel is None or self.lost is not None:
            return 0
        before = self.window.outstanding
        plan = self.window.remove(deliveries)
        acknowledged = before - self.window.outstanding
        acks = [Basic.Ack(delivery_tag=tag) for tag in plan.singles]
        if plan.multiple_up_to is not None:
            acks.insert(0, Basic.Ack(delivery_tag=plan.multiple_up_to, multiple=True))
        if acks:
            await self._channel.send(self._channel.marshal(*acks))
        if not self.window.is_over_bytes:
            self._channel.resume_reading()
        return acknowledged

    def _receive(
        self, method: ContentMethod, header: ContentHeader, body: bytes, cut: CutBody | None
    ) -> None:
        # The broker requeues what still arrives while the session closes.
        if self.lost is not None or not isinstance(method, Basic.Deliver) or method.delivery_tag is None:
            return
        self.window.add(method.delivery_tag, self._read(raw_message(method, header, body, cut)))
        if self.window.is_over_bytes and self._channel is not None:
            self._channel.stop_reading()
        if self.window.arrived >= self._wanted or self.window.is_full:
            self._wake.set()


def raw_message(
    deliver: Basic.Deliver, header: ContentHeader, body: bytes, cut: CutBody | None = None
) -> RawMessage:
    properties = header.properties
    parse_error = properties if isinstance(properties, UndecodableProperties) else None
    return RawMessage(
        exchange=deliver.exchange,
        routing_key=deliver.routing_key or "",
        redelivered=deliver.redelivered,
        message_id=properties.message_id,
        correlation_id=properties.correlation_id,
        headers=properties.headers or {},
        body=body,
        cut=cut,
        undecodable=parse_error.reason if parse_error else None,
        raw_properties=parse_error.raw if parse_error else b"",
    )
