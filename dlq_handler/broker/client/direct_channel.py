"""A channel that passes on deliveries, returns and confirms while the socket is read.

aiormq puts the frames of a channel into `channel.frames`, where a task assembles messages and starts another task for
each. Here `frames` is a queue that assembles messages itself, inside `put`. All other frames (replies to calls, a
cancel, a close) go the usual way. While `put` waits, the socket is not read: that bounds memory, because the broker
then keeps the rest. Of a body above the limit only the beginning is kept. aiormq reads frame by frame, and
decoders.py bounds a frame.

A version of aiormq that delivers frames in another way would leave messages unread without an error. So each frame
that arrives past `put` ends the connection with an error, and this process opens no direct channel any more: a consumer
that is opened again and again makes a quorum queue drop messages, and a publisher that sees no confirm repeats itself.

The callbacks must be quick and must not raise, or the connection is lost.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pamqp.frame
import structlog
from aiormq.abc import AbstractConnection, ChannelFrame, DeliveredMessage
from aiormq.channel import Channel
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dlq_handler.broker.client.connection import Connection
from dlq_handler.broker.client.supported import installed_version, required_version
from dlq_handler.broker.delivery import CutBody
from dlq_handler.errors import Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimit:
    """A body of more than `max_bytes` is hashed frame by frame, and only its first `kept_bytes` are kept."""

    max_bytes: int
    kept_bytes: int


class BodyCollector:
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

    def collect(self) -> tuple[bytes, CutBody | None]:
        cut = None if self._hash is None else CutBody(size=self._size, sha256=self._hash.hexdigest())
        return b"".join(self._kept), cut


ContentMethod = Basic.Deliver | Basic.Return

OnContent = Callable[[ContentMethod, ContentHeader, bytes, CutBody | None], None]
OnConfirm = Callable[[Basic.Ack | Basic.Nack], None]
OnLost = Callable[[str], None]

log = structlog.get_logger()

# Set for the rest of the process: the installed library does not change while it runs.
_bypass: str | None = None


class _FrameQueue(asyncio.Queue[tuple[int, Any]]):
    """Takes the frames of one channel from the connection's reader, each with its size."""

    def __init__(
        self, on_content: OnContent, on_confirm: OnConfirm | None, body_limit: BodyLimit | None
    ) -> None:
        super().__init__(maxsize=10)
        self._on_content, self._on_confirm, self._body_limit = on_content, on_confirm, body_limit
        self._method: ContentMethod | None = None
        self._header: ContentHeader | None = None
        self._body: BodyCollector | None = None
        self.reading = asyncio.Event()
        self.reading.set()

    async def put(self, item: tuple[int, Any]) -> None:
        frame = item[1]
        match frame:
            case ContentBody():
                if self._body is not None:
                    self._body.add(frame.value)
                self._pass_on_if_complete()
            case ContentHeader():
                self._header, self._body = frame, BodyCollector(frame.body_size, self._body_limit)
                self._pass_on_if_complete()
            case Basic.Deliver() | Basic.Return():
                await self.reading.wait()
                self._method = frame
            case Basic.Ack() | Basic.Nack() if self._on_confirm is not None:
                self._on_confirm(frame)
            case _:
                await super().put(item)

    def _pass_on_if_complete(self) -> None:
        method, header, body = self._method, self._header, self._body
        if method is None or header is None or body is None or body.missing_bytes > 0:
            return
        self._method, self._header, self._body = None, None, None
        self._on_content(method, header, *body.collect())


class DirectChannel(Channel):
    def __init__(
        self,
        connector: AbstractConnection,
        number: int,
        *,
        on_content: OnContent,
        on_confirm: OnConfirm | None,
        on_bypass: Callable[[str], None],
        body_limit: BodyLimit | None,
    ) -> None:
        super().__init__(connector, number, publisher_confirms=on_confirm is not None)
        # The task that super() started has not run yet, and it reads `frames` on every turn.
        self._frame_queue = self.frames = _FrameQueue(on_content, on_confirm, body_limit)
        self._on_bypass = on_bypass

    @property
    def is_reading(self) -> bool:
        return self._frame_queue.reading.is_set()

    def stop_reading(self) -> None:
        """Leave everything from the next message on in the socket, heartbeats included.

        aiormq treats a connection as lost after three missed heartbeats, so this must not last longer.
        """
        self._frame_queue.reading.clear()

    def resume_reading(self) -> None:
        self._frame_queue.reading.set()

    async def consume(
        self, queue: str, *, consumer_tag: str, priority: int, on_cancel: Callable[[object], None]
    ) -> None:
        """Start a consumer. `on_cancel` is called when the broker ends it, for example with its queue."""
        self.on_consumer_cancel_callbacks.add(on_cancel)
        await self.basic_consume(
            queue, self._deliver_past_queue, consumer_tag=consumer_tag, arguments={"x-priority": priority}
        )

    async def send(self, payload: bytes) -> None:
        """Write frames that are marshalled already, at once. Waits while the socket takes nothing."""
        # Queued is not written: a close right behind it would leave it in the queue.
        written = self.create_future()
        await self.write_queue.put(ChannelFrame(payload=payload, should_close=False, drain_future=written))
        await written

    def marshal(self, *frames: pamqp.frame.FrameTypes) -> bytes:
        return b"".join(pamqp.frame.marshal(frame, self.number) for frame in frames)

    def marshal_body(self, body: bytes) -> Iterator[bytes]:
        """As many frames as the frame size that was agreed on requires; none for an empty body."""
        for start in range(0, len(body), self.max_content_size):
            yield self.marshal(ContentBody(body[start : start + self.max_content_size]))

    async def _deliver_past_queue(self, _: DeliveredMessage) -> None:
        """aiormq requires a callback for each consumer, but `_FrameQueue.put` takes deliveries before it."""
        self._on_bypass("a delivery")

    # aiormq's own task calls these three for frames that came past `_FrameQueue.put`.
    async def _on_deliver_frame(self, _: Basic.Deliver) -> None:
        self._on_bypass("a delivery")

    async def _on_return_frame(self, _: Basic.Return) -> None:
        self._on_bypass("a returned message")

    async def _on_confirm_frame(self, _: Basic.Ack | Basic.Nack | Basic.Reject) -> None:
        self._on_bypass("a publisher confirm")


async def open_direct_channel(
    connection: Connection,
    *,
    on_content: OnContent,
    on_confirm: OnConfirm | None = None,
    on_lost: OnLost,
    body_limit: BodyLimit | None = None,
) -> DirectChannel:
    """Open a channel as aiormq's `Connection.channel` does. `on_confirm` puts it into confirm mode."""
    if _bypass is not None:
        raise Unavailable("broker", _bypass)
    underlay = connection.underlay
    if underlay is None:
        raise Unavailable("broker", "the connection was lost before a channel was opened")

    def end_connection(frame: str) -> None:
        # Once: more frames may be on their way.
        if not closing.is_set():
            closing.set()
            on_lost(_record_bypass(frame))
            connection.abort()

    closing = asyncio.Event()
    number = max(underlay.channels, default=0) + 1
    channel = DirectChannel(
        underlay,
        number,
        on_content=on_content,
        on_confirm=on_confirm,
        on_bypass=end_connection,
        body_limit=body_limit,
    )
    underlay.channels[number] = channel
    await channel.open()
    channel.closing.add_done_callback(lambda closed: on_lost(_explain(closed)))
    return channel


def _record_bypass(frame: str) -> str:
    global _bypass  # noqa: PLW0603  a fact about the installed library, so about the process
    version, required = installed_version("aiormq"), required_version("aiormq")
    _bypass = (
        f"aiormq {version} passed {frame} around dlq-handler's channel, so messages would be left unread; "
        f"install {required} and restart dlq-handler"
    )
    log.error("delivery.bypassed", frame=frame, library="aiormq", version=version, required=required)
    return _bypass


def _explain(closing: asyncio.Future[None]) -> str:
    error = None if closing.cancelled() else closing.exception()
    if error is None or isinstance(error, asyncio.CancelledError):
        return "the connection was lost"
    return f"the broker closed the channel: {type(error).__name__}: {error}"
