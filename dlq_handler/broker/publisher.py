"""Publish messages and learn what became of each: confirmed, unroutable, refused, or unknown.

Promises: mandatory, persistent, confirmed; a batch is one write and its confirms are awaited together; no message makes
`publish` raise; never two in flight with one id, because a return is matched by it. `Unavailable` means that nothing
was sent. After a timeout the connection is dropped: what it still carries may be delivered later, so it is `Unknown`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from aio_pika.abc import AbstractConnection
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.connection import BrokerAddress, broker_errors, close_connection
from dlq_handler.broker.direct_channel import ContentMethod, DirectChannel, open_direct_channel
from dlq_handler.errors import Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    message_id: str
    correlation_id: str
    exchange: str
    routing_key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has taken it over."""

    text: str = "confirmed"


@dataclass(frozen=True, slots=True)
class Unroutable:
    """No queue takes this routing key, or there is no such exchange. Nothing was delivered."""

    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker, or a full queue, did not take it."""

    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer. It may have been delivered, or be delivered later."""

    text: str


PublishOutcome = Confirmed | Unroutable | Refused | Unknown


class Publisher:
    def __init__(
        self, address: BrokerAddress, *, publish_timeout_seconds: float, call_timeout_seconds: float = 5.0
    ) -> None:
        self._address = address
        self._publish_timeout_seconds, self._call_timeout_seconds = (
            publish_timeout_seconds,
            call_timeout_seconds,
        )
        self._outlet: _Outlet | None = None
        # One batch at a time: two messages with one id must never be in flight together.
        self._turn = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._outlet is not None and self._outlet.lost is None

    @property
    def is_blocked(self) -> bool:
        """The broker has stopped reading from us, for want of memory or disk."""
        return self._outlet is not None and self._outlet.is_blocked

    async def publish(self, messages: Sequence[OutgoingMessage]) -> list[PublishOutcome]:
        """One outcome per message, in order. `Unavailable`: nothing was sent."""
        outcomes: list[PublishOutcome] = []
        async with self._turn:
            for round_ in _without_repeats(messages):
                try:
                    outlet = await self._open_outlet()
                except Unavailable as error:
                    if not outcomes:
                        raise
                    outcomes += [Unknown(f"not sent: {error}") for _ in round_]
                    continue
                outcomes += await self._send(outlet, round_)
        return outcomes

    async def close(self) -> None:
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            await close_connection(outlet.connection)

    async def _open_outlet(self) -> "_Outlet":
        if self._outlet is not None and self._outlet.lost is not None:
            await self.close()
        if self._outlet is None:
            connection = await self._address.connect("publisher")
            outlet = _Outlet(connection)
            try:
                async with broker_errors("open a channel"), asyncio.timeout(self._call_timeout_seconds):
                    await outlet.start()
            except BaseException:
                await close_connection(connection)
                raise
            self._outlet = outlet
        if self._outlet.is_blocked:
            raise Unavailable("broker", "publishing is blocked by a resource alarm")
        return self._outlet

    async def _send(self, outlet: "_Outlet", messages: Sequence[OutgoingMessage]) -> list[PublishOutcome]:
        flight = outlet.take_off(messages)
        try:
            async with broker_errors("publish"), asyncio.timeout(self._publish_timeout_seconds):
                await outlet.channel.send(outlet.marshal(messages))
                await flight.landed
        except Unavailable as error:
            outlet.lose(error.what)
        except BaseException:
            # Cancelled in mid-flight: what becomes of these messages is unknown, so is this connection's count.
            outlet.lose("cancelled")
            raise
        finally:
            if outlet.lost is not None:
                await self.close()
        return flight.outcomes(outlet.lost)


class _Flight:
    """A batch on its way: which tags are open, which messages came back."""

    def __init__(self, first_tag: int, messages: Sequence[OutgoingMessage]) -> None:
        self._messages = messages
        self._first_tag = first_tag
        self._outcomes: list[PublishOutcome | None] = [None] * len(messages)
        self._open = dict.fromkeys(range(first_tag, first_tag + len(messages)))
        self._tag_by_id = {message.message_id: first_tag + n for n, message in enumerate(messages)}
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def returned(self, message_id: str | None, text: str) -> None:
        # The confirm follows; until then the tag stays open.
        tag = self._tag_by_id.get(message_id or "")
        if tag is not None:
            self._outcomes[tag - self._first_tag] = Unroutable(text)

    def confirmed(self, frame: Basic.Ack | Basic.Nack) -> None:
        last = frame.delivery_tag or 0
        tags = [tag for tag in self._open if tag <= last] if frame.multiple else [last]
        outcome: PublishOutcome = (
            Confirmed()
            if isinstance(frame, Basic.Ack)
            else Refused("the broker refused it (basic.nack): a queue is full or failed")
        )
        for tag in tags:
            if tag in self._open:
                del self._open[tag]
                self._outcomes[tag - self._first_tag] = self._outcomes[tag - self._first_tag] or outcome
        if not self._open and not self.landed.done():
            self.landed.set_result(None)

    def outcomes(self, lost: str | None) -> list[PublishOutcome]:
        return [outcome or Unknown(lost or "no answer") for outcome in self._outcomes]


class _Outlet:
    """One connection with one channel in confirm mode."""

    channel: DirectChannel

    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        self.lost: str | None = None
        self._sent = 0
        self._flight: _Flight | None = None

    async def start(self) -> None:
        self.channel = await open_direct_channel(
            self.connection, on_content=self._returned, on_confirm=self._confirmed
        )
        self.channel.closing.add_done_callback(self._closed)

    @property
    def is_blocked(self) -> bool:
        """aiormq keeps this to itself; the one public sign of it is that `ready()` would wait."""
        transport = self.connection.transport
        if transport is None or self.lost is not None:
            return False
        waiting = transport.connection.ready()
        try:
            waiting.send(None)
        except StopIteration:
            return False
        waiting.close()
        return True

    def take_off(self, messages: Sequence[OutgoingMessage]) -> _Flight:
        self._flight = _Flight(self._sent + 1, messages)
        self._sent += len(messages)
        return self._flight

    def marshal(self, messages: Sequence[OutgoingMessage]) -> bytes:
        now = datetime.now(UTC)
        return b"".join(self.channel.marshal(*self._frames(message, now)) for message in messages)

    def _frames(
        self, message: OutgoingMessage, now: datetime
    ) -> Iterator[Basic.Publish | ContentHeader | ContentBody]:
        yield Basic.Publish(exchange=message.exchange, routing_key=message.routing_key, mandatory=True)
        yield ContentHeader(
            body_size=len(message.body),
            properties=Basic.Properties(
                content_type="application/json",
                delivery_mode=2,
                correlation_id=message.correlation_id,
                message_id=message.message_id,
                timestamp=now,
            ),
        )
        size = self.channel.max_content_size
        for start in range(0, len(message.body), size):
            yield ContentBody(message.body[start : start + size])

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        if self._flight is not None and not self._flight.landed.done():
            self._flight.landed.set_result(None)

    def _returned(self, method: ContentMethod, header: ContentHeader, _body: bytes) -> None:
        if self._flight is not None and isinstance(method, Basic.Return):
            self._flight.returned(
                header.properties.message_id,
                f"{method.reply_text}: exchange {method.exchange!r}, routing key {method.routing_key!r}",
            )

    def _confirmed(self, frame: Basic.Ack | Basic.Nack) -> None:
        if self._flight is not None:
            self._flight.confirmed(frame)

    def _closed(self, closing: asyncio.Future[None]) -> None:
        error = None if closing.cancelled() else closing.exception()
        self.lose(
            f"the channel was closed: {type(error).__name__}: {error}" if error else "the channel was closed"
        )


def _without_repeats(messages: Sequence[OutgoingMessage]) -> Iterator[list[OutgoingMessage]]:
    """Cut the batch, in order, so that no id occurs twice in a part."""
    part: dict[str, OutgoingMessage] = {}
    for message in messages:
        if message.message_id in part:
            yield list(part.values())
            part = {}
        part[message.message_id] = message
    if part:
        yield list(part.values())
