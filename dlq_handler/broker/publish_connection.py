"""One connection to publish over: a channel in confirm mode, and a second channel for a round trip.

A broker with a memory or disk alarm stops reading a connection at the first message header, and sends
connection.blocked only then. It delivers what was sent behind that header when the alarm ends: long after dlq-handler
gave the message up, and perhaps sent it again. So `begin` sends no more than the first header, and then a call on the
other channel, whose reply shows that the broker still reads. Without a reply (an alarm, a half-open connection) the
message is never completed, so nothing was published.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.client.connection import Connection
from dlq_handler.broker.client.direct_channel import (
    ContentMethod,
    DirectChannel,
    open_direct_channel,
)
from dlq_handler.broker.delivery import CutBody
from dlq_handler.broker.outgoing import Confirmed, OutgoingMessage, PublishOutcome, PublishRefused, Unroutable
from dlq_handler.errors import Unavailable

NACKED = PublishRefused("the broker refused it (basic.nack): a queue is full, or has failed")


class PublishBatch:
    """Matches the broker's answers with the messages of one batch.

    The broker confirms by running number: one message, or all up to a number. A message that no queue takes it returns
    first, by message id, and confirms afterwards like the others.
    """

    def __init__(self, first_tag: int, messages: Sequence[OutgoingMessage]) -> None:
        self._first_tag = first_tag
        self._next_tag = first_tag
        """Every tag below this one is answered; some above may be."""
        self._end_tag = first_tag + len(messages)
        self._tag_by_id = {message.message_id: first_tag + n for n, message in enumerate(messages)}
        self._outcomes: list[PublishOutcome | None] = [None] * len(messages)
        self._returned: dict[int, Unroutable] = {}
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take_return(self, message_id: str | None, text: str) -> None:
        tag = self._tag_by_id.get(message_id or "")
        if tag is not None:
            self._returned[tag] = Unroutable(text)

    def take_confirm(self, frame: Basic.Ack | Basic.Nack) -> None:
        answer = Confirmed() if isinstance(frame, Basic.Ack) else NACKED
        last = frame.delivery_tag or 0
        for tag in range(self._next_tag if frame.multiple else last, last + 1):
            # A late answer to an earlier batch, which was given up, is ignored.
            if self._first_tag <= tag < self._end_tag and self._outcomes[tag - self._first_tag] is None:
                self._outcomes[tag - self._first_tag] = self._returned.get(tag, answer)
        while self._next_tag < self._end_tag and self._outcomes[self._next_tag - self._first_tag] is not None:
            self._next_tag += 1
        if self._next_tag == self._end_tag:
            self.end()

    def end(self) -> None:
        """All answers have arrived, or no more will."""
        if not self.answered.done():
            self.answered.set_result(None)

    def outcomes(self, if_unanswered: PublishOutcome) -> list[PublishOutcome]:
        return [outcome or if_unanswered for outcome in self._outcomes]


def parts_without_repeats(messages: Sequence[OutgoingMessage]) -> Iterator[list[OutgoingMessage]]:
    """Cut the batch, in order, so that no id occurs twice in a part."""
    part: dict[str, OutgoingMessage] = {}
    for message in messages:
        if message.message_id in part:
            yield list(part.values())
            part = {}
        part[message.message_id] = message
    if part:
        yield list(part.values())


class PublishConnection:
    """Once it is lost it stays lost: the publisher opens another."""

    _channel: DirectChannel
    _round_trips: AbstractChannel

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.lost: str | None = None
        self._sent = 0
        self._batch: PublishBatch | None = None
        self._known_exchanges = {""}
        self._last_route: tuple[str, str] | None = None
        self._last_publish = b""

    async def start(self) -> None:
        self._channel = await open_direct_channel(
            self._connection, on_content=self._take_return, on_confirm=self._take_confirm, on_lost=self.lose
        )
        self._round_trips = await self._connection.open_channel()

    @property
    def is_blocked(self) -> bool:
        return self._connection.is_blocked

    async def has_exchange(self, exchange: str) -> bool:
        """To be asked before: publishing to a missing exchange would close the channel under the whole batch."""
        # The default exchange always exists, and the broker refuses questions about it.
        if exchange and exchange not in self._known_exchanges:
            # On a channel of its own, because the broker closes a channel that asks for a missing exchange.
            async with self._connection.channel(publisher_confirms=False) as channel:
                asking = await channel.get_underlay_channel()
                try:
                    await asking.exchange_declare(exchange, passive=True)
                except ChannelNotFoundEntity:
                    return False
            self._known_exchanges.add(exchange)
        return True

    async def begin(self, messages: Sequence[OutgoingMessage]) -> tuple[PublishBatch, bytes]:
        """Make sure that the broker reads. Nothing is published before `finish` sends the returned bytes."""
        self._batch = batch = PublishBatch(self._sent + 1, messages)
        self._sent += len(messages)
        now = datetime.now(UTC)
        frames = [frame for message in messages for frame in self._frames(message, now)]
        # A message without a body is complete with its header, so the header has to wait too.
        first_frames = 2 if messages[0].body else 1
        await self._channel.send(b"".join(frames[:first_frames]))
        await self._round_trips.basic_qos(prefetch_count=1)
        if self.lost is not None:
            raise Unavailable("broker", self.lost)
        return batch, b"".join(frames[first_frames:])

    async def finish(self, batch: PublishBatch, payload: bytes) -> None:
        await self._channel.send(payload)
        await batch.answered

    async def end(self) -> None:
        await self._connection.end()

    async def drop(self) -> None:
        await self._connection.drop()

    def lose(self, reason: str) -> None:
        self.lost = self.lost or reason
        if self._batch is not None:
            self._batch.end()

    def _frames(self, message: OutgoingMessage, now: datetime) -> Iterator[bytes]:
        yield self._publish_frame(message.exchange, message.routing_key)
        properties = Basic.Properties(
            content_type="application/json",
            delivery_mode=2,
            correlation_id=message.correlation_id,
            message_id=message.message_id,
            timestamp=now,
        )
        yield self._channel.marshal(ContentHeader(body_size=len(message.body), properties=properties))
        yield from self._channel.marshal_body(message.body)

    def _publish_frame(self, exchange: str, routing_key: str) -> bytes:
        """Nearly always the same as before, so the last one is kept."""
        if self._last_route != (exchange, routing_key):
            publish = Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
            self._last_route, self._last_publish = (exchange, routing_key), self._channel.marshal(publish)
        return self._last_publish

    def _take_return(
        self, method: ContentMethod, header: ContentHeader, _: bytes, _cut: CutBody | None
    ) -> None:
        if self._batch is not None and isinstance(method, Basic.Return):
            self._batch.take_return(
                header.properties.message_id,
                f"{method.reply_text}: exchange {method.exchange!r}, routing key {method.routing_key!r}",
            )

    def _take_confirm(self, frame: Basic.Ack | Basic.Nack) -> None:
        if self._batch is not None:
            self._batch.take_confirm(frame)
