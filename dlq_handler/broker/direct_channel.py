"""A channel that hands deliveries, returns and confirms over while the socket is read: no task and no queue between.

aiormq puts every frame of a channel into `channel.frames` for a task that assembles messages and starts one more task
for each. Here `frames` is a queue that assembles by itself, inside `put`; what it does not know (replies to calls, a
cancel, a close) goes the usual way. Waiting inside `put` stops the reading of the socket, which is how memory is
bounded: the broker then keeps the rest. Nothing here works on a message; callbacks must be quick and must not raise.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pamqp.frame
from aio_pika.abc import AbstractConnection
from aiormq.abc import ChannelFrame
from aiormq.channel import Channel
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.errors import Unavailable

ContentMethod = Basic.Deliver | Basic.Return
OnContent = Callable[[ContentMethod, ContentHeader, bytes], None]
OnConfirm = Callable[[Basic.Ack | Basic.Nack], None]


class _Inlet(asyncio.Queue[tuple[int, Any]]):
    """Where the connection's reader puts the frames of one channel, with their size."""

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
        # The task that super() created has not run yet, and it looks `frames` up on every turn.
        self._inlet = self.frames = _Inlet(on_content, on_confirm)

    @property
    def is_reading(self) -> bool:
        return self._inlet.reading.is_set()

    def stop_reading(self) -> None:
        """Leave everything from the next letter on, heartbeats included, in the socket. aiormq gives the connection
        up after three missed heartbeats: pausing for longer means giving the letters back anyway."""
        self._inlet.reading.clear()

    def go_on_reading(self) -> None:
        self._inlet.reading.set()

    async def send(self, payload: bytes) -> None:
        """Queue frames that were marshalled already, as one write."""
        await self.write_queue.put(ChannelFrame(payload=payload, should_close=False))

    def marshal(self, *frames: pamqp.frame.FrameTypes) -> bytes:
        return b"".join(pamqp.frame.marshal(frame, self.number) for frame in frames)


async def open_direct_channel(
    connection: AbstractConnection, *, on_content: OnContent, on_confirm: OnConfirm | None = None
) -> DirectChannel:
    """As aiormq's `Connection.channel` does it, with our class. With `on_confirm` the channel is in confirm mode."""
    if connection.transport is None:
        raise Unavailable("broker", "the connection was lost before a channel was opened")
    link = connection.transport.connection
    number = max(link.channels, default=0) + 1
    channel = DirectChannel(link, number, on_content=on_content, on_confirm=on_confirm)
    link.channels[number] = channel
    await channel.open()
    return channel
