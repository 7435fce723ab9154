"""One connection to publish over: a channel in confirm mode, and a second one to ask a question on.

A broker out of memory stops reading a connection when the first header of a message comes over it, and says
so only then. What was sent behind that header it delivers when the alarm ends: long after we gave it up, and
perhaps sent it again. So `begin` sends no more than that header, and then a question on the other channel,
whose answer shows that we are read. Where none comes (an alarm, a half-open link) the message is never
finished, and nothing was published.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.connection import Connection
from dlq_handler.broker.direct_channel import ContentMethod, DirectChannel, open_direct_channel
from dlq_handler.broker.flight import Flight, OutgoingMessage
from dlq_handler.errors import Unavailable


class Outlet:
    """Lost once is lost for good: whoever uses it opens another."""

    _channel: DirectChannel
    _questions: AbstractChannel

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.lost: str | None = None
        self._sent = 0
        self._flight: Flight | None = None
        self._known_exchanges = {""}
        self._last_route: tuple[str, str] | None = None
        self._last_publish = b""

    async def start(self) -> None:
        self._channel = await open_direct_channel(
            self.connection, on_content=self._returned, on_confirm=self._confirmed, on_lost=self.lose
        )
        questions = self.connection.channel(publisher_confirms=False)
        await questions.initialize()
        self._questions = await questions.get_underlay_channel()

    @property
    def is_blocked(self) -> bool:
        """The broker said that it has stopped reading. aiormq shows it only in that `ready` would wait."""
        transport = self.connection.transport
        if transport is None or transport.connection.is_closed:
            return False
        waiting = transport.connection.ready()
        try:
            waiting.send(None)
        except StopIteration:
            return False
        waiting.close()
        return True

    async def has_exchange(self, exchange: str) -> bool:
        """Asked beforehand: publishing to a missing one would close the channel under the whole batch."""
        if exchange not in self._known_exchanges:
            # On a channel of its own, since the broker closes the one that hears of a missing exchange.
            async with self.connection.channel(publisher_confirms=False) as channel:
                asking = await channel.get_underlay_channel()
                try:
                    await asking.exchange_declare(exchange, passive=True)
                except ChannelNotFoundEntity:
                    return False
            self._known_exchanges.add(exchange)
        return True

    async def begin(self, messages: Sequence[OutgoingMessage]) -> tuple[Flight, bytes]:
        """Make sure that the broker reads us. Nothing is published before `finish` sends the bytes."""
        self._flight = flight = Flight(self._sent + 1, messages)
        self._sent += len(messages)
        now = datetime.now(UTC)
        frames = [frame for message in messages for frame in self._frames(message, now)]
        # A message without a body is complete with its header, which then has to wait as well.
        opening = 2 if messages[0].body else 1
        await self._channel.send(b"".join(frames[:opening]))
        await self._questions.basic_qos(prefetch_count=1)
        if self.lost is not None:
            raise Unavailable("broker", self.lost)
        return flight, b"".join(frames[opening:])

    async def finish(self, flight: Flight, payload: bytes) -> None:
        await self._channel.send(payload)
        await flight.landed

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        if self._flight is not None:
            self._flight.land()

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
        size = self._channel.max_content_size
        for start in range(0, len(message.body), size):
            yield self._channel.marshal(ContentBody(message.body[start : start + size]))

    def _publish_frame(self, exchange: str, routing_key: str) -> bytes:
        """The same for nearly all notices, so it is made once."""
        if self._last_route != (exchange, routing_key):
            publish = Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
            self._last_route, self._last_publish = (exchange, routing_key), self._channel.marshal(publish)
        return self._last_publish

    def _returned(self, method: ContentMethod, header: ContentHeader, *_body: object) -> None:
        if self._flight is not None and isinstance(method, Basic.Return):
            self._flight.take_return(
                header.properties.message_id,
                f"{method.reply_text}: exchange {method.exchange!r}, routing key {method.routing_key!r}",
            )

    def _confirmed(self, frame: Basic.Ack | Basic.Nack) -> None:
        if self._flight is not None:
            self._flight.take_confirm(frame)
