"""A channel that hands over deliveries, returns and confirms while the socket is read.

aiormq puts the frames of a channel into `channel.frames`, where a task assembles messages and starts another
task for each. Here `frames` is a queue that assembles by itself, inside `put`; what it does not know (replies
to calls, a cancel, a close) goes the usual way. To wait inside `put` is to stop reading the socket: that is
how memory is bounded, for the broker then keeps the rest.

Nothing is worked on here: the callbacks must be quick, and must not raise, or the connection is over.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pamqp.frame
from aiormq.abc import ChannelFrame
from aiormq.channel import Channel
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.connection import Connection
from dlq_handler.errors import Unavailable

ContentMethod = Basic.Deliver | Basic.Return
OnContent = Callable[[ContentMethod, ContentHeader, bytes], None]
OnConfirm = Callable[[Basic.Ack | Basic.Nack], None]
OnLost = Callable[[str], None]


class _Inlet(asyncio.Queue[tuple[int, Any]]):
    """Where the connection's reader puts the frames of one channel, each with its size."""

    def __init__(self, on_content: OnContent, on_confirm: OnConfirm | None) -> None:
        super().__init__(maxsize=10)
        self._on_content, self._on_confirm = on_content, on_confirm
        self._method: ContentMethod | None = None
        self._header: ContentHeader | None = None
        self._body: list[bytes] = []
        self._missing_bytes = 0
        self.reading = asyncio.Event()
        self.reading.set()

    async def put(self, item: tuple[int, Any]) -> None:
        frame = item[1]
        match frame:
            case ContentBody():
                self._body.append(frame.value)
                self._missing_bytes -= len(frame.value)
                self._hand_over_if_complete()
            case ContentHeader():
                self._header, self._missing_bytes = frame, frame.body_size
                self._hand_over_if_complete()
            case Basic.Deliver() | Basic.Return():
                await self.reading.wait()
                self._method = frame
            case Basic.Ack() | Basic.Nack() if self._on_confirm is not None:
                self._on_confirm(frame)
            case _:
                await super().put(item)

    def _hand_over_if_complete(self) -> None:
        if self._missing_bytes > 0 or self._method is None or self._header is None:
            return
        method, header, body = self._method, self._header, b"".join(self._body)
        self._method, self._header, self._body = None, None, []
        self._on_content(method, header, body)


class DirectChannel(Channel):
    def __init__(
        self, connection: Any, number: int, *, on_content: OnContent, on_confirm: OnConfirm | None
    ) -> None:
        super().__init__(connection, number, publisher_confirms=on_confirm is not None)
        # The task that super() made has not run yet, and it looks `frames` up on every turn.
        self._inlet = self.frames = _Inlet(on_content, on_confirm)

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
    connection: Connection, *, on_content: OnContent, on_confirm: OnConfirm | None = None, on_lost: OnLost
) -> DirectChannel:
    """As aiormq's `Connection.channel` does it, with our class. `on_confirm` puts it into confirm mode."""
    if connection.transport is None:
        raise Unavailable("broker", "the connection was lost before a channel was opened")
    link = connection.transport.connection
    number = max(link.channels, default=0) + 1
    channel = DirectChannel(link, number, on_content=on_content, on_confirm=on_confirm)
    link.channels[number] = channel
    await channel.open()
    channel.closing.add_done_callback(lambda closing: on_lost(_why(closing)))
    return channel


def _why(closing: asyncio.Future[None]) -> str:
    error = None if closing.cancelled() else closing.exception()
    if error is None or isinstance(error, asyncio.CancelledError):
        return "the connection was lost"
    return f"the broker closed the channel: {type(error).__name__}: {error}"
