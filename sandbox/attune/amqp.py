"""How the reference services talk to RabbitMQ: Attune's publish properties, Attune's rule of settling.

Plain connections only: a reference must not re-declare a queue behind a test's back.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import cast

import aio_pika
import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from yarl import URL

from sandbox.attune.log_line import PrintLine, silent
from sandbox.attune.messages import Envelope, StockMessage, read_envelope

CONNECT_SECONDS = 10
RPC_SECONDS = 10
BULK_SECONDS = 120

BROKER_AWAY: tuple[type[Exception], ...] = (
    aiormq.exceptions.AMQPError,
    ConnectionError,
    OSError,
    RuntimeError,  # what aio-pika raises on a channel or connection that is closed
    TimeoutError,
)
"""What a call to the broker raises when the broker does not answer."""


class PublishFailed(Exception):
    """The broker did not take a message. The only error after which our stock consumers requeue."""


async def open_connection(
    url: str, *, name: str | None = None, heartbeat_seconds: int | None = None
) -> AbstractConnection:
    """`name` is how the broker's own tools show it; without `heartbeat_seconds` the broker's suggestion holds."""
    address = URL(url)
    if heartbeat_seconds is not None:
        address = address.update_query(heartbeat=heartbeat_seconds)
    return await aio_pika.connect(
        address, timeout=CONNECT_SECONDS, client_properties={"connection_name": name} if name else None
    )


@contextlib.contextmanager
def loss_as_error() -> Iterator[None]:
    """aiormq cancels calls that wait on a lost connection. Unless the task was asked to stop: a ConnectionError."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except asyncio.CancelledError as error:
        # Compared with before: Python 3.11 and 3.12 leave the count raised after a failed TaskGroup.
        if task is None or task.cancelling() > before:
            raise
        raise ConnectionError("the connection was lost") from error


class Publisher:
    """Publishes with exactly the properties a message carries, on a channel of its own."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._channel: AbstractChannel | None = None

    async def publish(self, message: StockMessage) -> None:
        """Confirmed, not mandatory: to a key without a queue it is confirmed and lost, as in Attune (D21)."""
        try:
            with loss_as_error():
                if self._channel is None or self._channel.is_closed:
                    self._channel = await self._connection.channel()
                await _send(await self._channel.get_underlay_channel(), message, timeout=RPC_SECONDS)
        except BROKER_AWAY as error:
            raise PublishFailed(f"{message.routing_key}: {error}") from error

    async def publish_many(self, messages: Iterable[StockMessage]) -> None:
        """Pipelined without confirms, for loads; returns once the broker has routed every one."""
        async with asyncio.timeout(BULK_SECONDS):
            channel = await self._connection.channel(publisher_confirms=False)
            async with channel:
                underlay = await channel.get_underlay_channel()
                for message in messages:
                    await _send(underlay, message, timeout=None)
                # A channel answers in order: this reply means that each publish before it has been handled.
                await channel.get_exchange("amq.direct", ensure=True)


class QueueConsumer:
    """One consumer, one message at a time, settled by Attune's generic rule.

    Handled: ack. Not an envelope: nack without requeue. Failed: requeued only after an error of the broker. So a
    database error drops the message for good: it dies into an exchange without a binding for it (defects D1,
    D4, D5). `kept`: errors after which the message is instead tried again, `later_seconds` later.
    """

    def __init__(
        self,
        channel: AbstractChannel,
        queue: str,
        tag: str,
        handle: Callable[[Envelope], Awaitable[None]],
        *,
        prefetch: int = 10,
        kept: tuple[type[Exception], ...] = (),
        later_seconds: float = 1.0,
        print_line: PrintLine = silent,
    ) -> None:
        self.failures: list[Exception] = []
        self.settled = 0
        """Number of messages that were acknowledged or rejected."""
        self._channel = channel
        self._queue_name = queue
        self._tag = tag
        self._handle = handle
        self._prefetch = prefetch
        self._kept, self._later_seconds, self._print_line = kept, later_seconds, print_line
        self._one_at_a_time = asyncio.Lock()
        self._queue: AbstractQueue | None = None

    async def start(self) -> None:
        await self._channel.set_qos(prefetch_count=self._prefetch, timeout=RPC_SECONDS)
        self._queue = await self._channel.declare_queue(self._queue_name, passive=True, timeout=RPC_SECONDS)
        await self._queue.consume(self._receive, consumer_tag=self._tag, timeout=RPC_SECONDS)

    async def close(self) -> None:
        if self._queue is not None and not self._channel.is_closed:
            await self._queue.cancel(self._tag, timeout=RPC_SECONDS)
        self._queue = None

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        async with self._one_at_a_time:
            failure = await self._try(message)
        # The broker takes back what was not settled before its channel was lost.
        with contextlib.suppress(*BROKER_AWAY):
            if failure is None:
                await message.ack()
            elif self._is_kept(failure):
                # Unacknowledged meanwhile, and outside of the lock: other messages go on, and this one is no hot loop.
                await asyncio.sleep(self._later_seconds)
                await message.nack(requeue=True)
            else:
                await message.nack(requeue=isinstance(failure, PublishFailed))
            self.settled += 1

    async def _try(self, message: AbstractIncomingMessage) -> Exception | None:
        try:
            await self._handle(read_envelope(message.body))
        except Exception as error:
            self.failures.append(error)
            is_again = isinstance(error, PublishFailed) or self._is_kept(error)
            fate = "it will be tried again" if is_again else "the message is dropped"
            self._print_line(f"{self._queue_name}: {type(error).__name__}: {error}; {fate}")
            return error
        return None

    def _is_kept(self, error: Exception) -> bool:
        # A ValueError, also one of the database's driver, is the message's own fault, and would come back for ever.
        return isinstance(error, self._kept) and not isinstance(error, ValueError)


async def _send(channel: aiormq.abc.AbstractChannel, message: StockMessage, *, timeout: float | None) -> None:
    await cast("aiormq.Channel", channel).basic_publish(
        message.body,
        exchange=message.exchange,
        routing_key=message.routing_key,
        properties=message.properties(),
        wait=timeout is not None,
        timeout=timeout,
    )
