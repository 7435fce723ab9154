"""A channel that hands over deliveries, returns and confirms while the socket is read.

aiormq puts the frames of a channel into `channel.frames`, where a task assembles messages and starts another
task for each. Here `frames` is a queue that assembles by itself, inside `put`; what it does not know (replies
to calls, a cancel, a close) goes the usual way. To wait inside `put` is to stop reading the socket: that is
how memory is bounded, for the broker then keeps the rest. Of a body beyond the channel's limit only the beginning is
kept: aiormq reads frame by frame, and bounded_frames.py bounds a frame.

Nothing is worked on here: the callbacks must be quick, and must not raise, or the connection is over.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pamqp.frame
from aiormq.abc import ChannelFrame
from aiormq.channel import Channel
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.connection import Connection
from dlq_handler.domain.read_dead_letter import CutBody
from dlq_handler.errors import Unavailable

ContentMethod = Basic.Deliver | Basic.Return


OnContent = Callable[[ContentMethod, ContentHeader, bytes, CutBody | None], None]
OnConfirm = Callable[[Basic.Ack | Basic.Nack], None]
OnLost = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimit:
    """A body of more than `max_bytes` is hashed frame by frame, and only its first `kept_bytes` are kept."""

    max_bytes: int
    kept_bytes: int


class _Body:
    """The body of one message while its frames arrive."""

    __slots__ = ("_hash", "_kept", "_room", "_size", "missing_bytes")

    def __init__(self, size: int, limit: BodyLimit | None) -> None:
        self._size, self.missing_bytes, self._room = size, size, size
        self._hash = None
        if limit is not None and size > limit.max_bytes:
            self._hash, self._room = hashlib.sha256(), limit.kept_bytes
        self._kept: list[bytes] = []

    def add(self, part: bytes) -> None:
        self.missing_bytes -= len(part)
        if self._hash is not None:
            self._hash.update(part)
            # A view would keep the whole frame alive.
            part = part[: self._room]
            self._room -= len(part)
        if part:
            self._kept.append(part)

    def kept(self) -> bytes:
        return b"".join(self._kept)

    def cut(self) -> CutBody | None:
        return None if self._hash is None else CutBody(size=self._size, sha256=self._hash.hexdigest())


class _Inlet(asyncio.Queue[tuple[int, Any]]):
    """Where the connection's reader puts the frames of one channel, each with its size."""

    def __init__(
        self, on_content: OnContent, on_confirm: OnConfirm | None, body_limit: BodyLimit | None
    ) -> None:
        super().__init__(maxsize=10)
        self._on_content, self._on_confirm, self._body_limit = on_content, on_confirm, body_limit
        self._method: ContentMethod | None = None
        self._header: ContentHeader | None = None
        self._body: _Body | None = None
        self.reading = asyncio.Event()
        self.reading.set()

    async def put(self, item: tuple[int, Any]) -> None:
        frame = item[1]
        match frame:
            case ContentBody():
                if self._body is not None:
                    self._body.add(frame.value)
                self._hand_over_if_complete()
            case ContentHeader():
                self._header, self._body = frame, _Body(frame.body_size, self._body_limit)
                self._hand_over_if_complete()
            case Basic.Deliver() | Basic.Return():
                await self.reading.wait()
                self._method = frame
            case Basic.Ack() | Basic.Nack() if self._on_confirm is not None:
                self._on_confirm(frame)
            case _:
                await super().put(item)

    def _hand_over_if_complete(self) -> None:
        method, header, body = self._method, self._header, self._body
        if method is None or header is None or body is None or body.missing_bytes > 0:
            return
        self._method, self._header, self._body = None, None, None
        self._on_content(method, header, body.kept(), body.cut())


class DirectChannel(Channel):
    def __init__(
        self,
        connection: Any,
        number: int,
        *,
        on_content: OnContent,
        on_confirm: OnConfirm | None,
        body_limit: BodyLimit | None,
    ) -> None:
        super().__init__(connection, number, publisher_confirms=on_confirm is not None)
        # The task that super() made has not run yet, and it looks `frames` up on every turn.
        self._inlet = self.frames = _Inlet(on_content, on_confirm, body_limit)

    @property
    def is_reading(self) -> bool:
        return self._inlet.reading.is_set()

    def stop_reading(self) -> None:
        """Leave everything from the next message on in the socket, heartbeats included.

        aiormq takes three missed heartbeats for a lost connection, so this must not last longer.
        """
        self._inlet.reading.clear()

    def go_on_reading(self) -> None:
        self._inlet.reading.set()

    async def send(self, payload: bytes) -> None:
        """Write frames that are marshalled already, at once. Waits while the socket takes nothing."""
        # Queued is not written: a close right behind it would leave it in the queue.
        written = self.create_future()
        await self.write_queue.put(ChannelFrame(payload=payload, should_close=False, drain_future=written))
        await written

    def marshal(self, *frames: pamqp.frame.FrameTypes) -> bytes:
        return b"".join(pamqp.frame.marshal(frame, self.number) for frame in frames)


async def open_direct_channel(
    connection: Connection,
    *,
    on_content: OnContent,
    on_confirm: OnConfirm | None = None,
    on_lost: OnLost,
    body_limit: BodyLimit | None = None,
) -> DirectChannel:
    """As aiormq's `Connection.channel` does it, with our class. `on_confirm` puts it into confirm mode."""
    if connection.transport is None:
        raise Unavailable("broker", "the connection was lost before a channel was opened")
    link = connection.transport.connection
    number = max(link.channels, default=0) + 1
    channel = DirectChannel(link, number, on_content=on_content, on_confirm=on_confirm, body_limit=body_limit)
    link.channels[number] = channel
    await channel.open()
    channel.closing.add_done_callback(lambda closing: on_lost(_why(closing)))
    return channel


def _why(closing: asyncio.Future[None]) -> str:
    error = None if closing.cancelled() else closing.exception()
    if error is None or isinstance(error, asyncio.CancelledError):
        return "the connection was lost"
    return f"the broker closed the channel: {type(error).__name__}: {error}"
