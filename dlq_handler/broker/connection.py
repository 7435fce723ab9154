"""Open AMQP connections, end them for certain, and translate what the client raises.

Connections are plain, not robust: a robust one re-declares deleted queues by itself, shows "connected" with
no consumer, and hangs in calls made while it is away. Here a lost connection is simply over; whoever used it
opens the next one, from the next URL, at a moment of its own choosing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aio_pika
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from aiormq.exceptions import AMQPError, ChannelAccessRefused, InvalidFrameError, ProbableAuthenticationError
from yarl import URL

from dlq_handler.broker import bounded_frames, equal_tables, tolerant_headers
from dlq_handler.errors import BrokerRightsMissing, Unavailable
from dlq_handler.heartbeat import beat, bounded
from dlq_handler.tasks import StopCheck

CLOSE_TIMEOUT_SECONDS = 5.0


@asynccontextmanager
async def broker_errors(doing: str) -> AsyncIterator[None]:
    """Turn every way in which aio-pika reports a lost or refusing broker into `Unavailable`."""
    stop = StopCheck()
    beat()
    try:
        yield
        beat()
    except asyncio.CancelledError as error:
        # On a half-open connection the client cancels the call by itself.
        if stop.is_stop:
            raise
        raise Unavailable("broker", f"{doing}: the connection was lost") from error
    except ChannelAccessRefused as error:
        raise BrokerRightsMissing(f"{doing}: {_said(error)}") from error
    except (AMQPError, OSError, TimeoutError, RuntimeError, EOFError, StopAsyncIteration) as error:
        # RuntimeError is what aiormq raises for "connection closed" and "channel closed"; the last two escape
        # from it when the peer hangs up in the middle of the handshake.
        raise Unavailable("broker", f"{doing}: {_said(error)}") from error
    except Exception as error:
        # Thrown by aiormq into calls that wait when a connection goes without a reason: bare, not of any class.
        if type(error) is not Exception:
            raise
        raise Unavailable("broker", f"{doing}: the connection was lost") from error


def _said(error: BaseException) -> str:
    if isinstance(error, InvalidFrameError) and "Connection.Close" in str(error):
        # All that aiormq keeps of the broker's "no" to opening the vhost.
        return "the broker refuses this vhost: it does not exist, or the user has no rights in it (message_queue.url)"
    if isinstance(error, ProbableAuthenticationError):
        return "the broker refuses this user or its password (message_queue.url)"
    if isinstance(error, ConnectionRefusedError) or isinstance(error.__cause__, ConnectionRefusedError):
        return "nobody listens there; is the broker up, is message_queue.url right?"
    text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Socket(TransportFactory):
    """Opens the socket as aiormq does, and keeps hold of it: aiormq itself never gives it away."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, self._writer = await factory.create(url, **options)
        return reader, self._writer

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class Connection(aio_pika.Connection):
    """A plain connection that can be ended without the peer's help."""

    def __init__(self, url: URL, **options: Any) -> None:
        super().__init__(url, **options)
        self._socket = _Socket()
        self.kwargs["transport_factory"] = self._socket

    async def end(self) -> None:
        """Close politely, but not for long: a half-open peer never answers. Never fails."""
        with suppress(Unavailable):
            async with broker_errors("close the connection"), asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self.close()
        self._socket.abort()

    async def drop(self) -> None:
        """End it at once. What we wrote and the network has not taken yet is thrown away, not flushed."""
        self._socket.abort()
        await self.end()


@dataclass(slots=True, kw_only=True)
class BrokerAddress:
    """Where the broker is: one URL, or the nodes of a cluster, tried in turn after each loss."""

    urls: Sequence[str] = field(repr=False)
    heartbeat_seconds: int = 10
    connect_timeout_seconds: float = 5.0
    instance: str = "dlq-handler"
    on_reconnect: Callable[[str], None] = field(default=lambda _: None, repr=False)
    """Is told the purpose of every connection that took the place of an earlier one."""
    _turn: int = 0

    async def connect(self, purpose: str, *, is_again: bool = False) -> Connection:
        """Open one connection; the next call after a failure goes to the next node. `is_again`: the caller had one."""
        tolerant_headers.install()
        equal_tables.install()
        bounded_frames.install()
        url = URL(self.urls[self._turn % len(self.urls)])
        try:
            # Without a timeout the handshake with a half-open peer never ends.
            async with (
                broker_errors(f"connect to {url.host}:{url.port or 5672}"),
                bounded(self.connect_timeout_seconds),
            ):
                opened = await aio_pika.connect(
                    url.update_query(heartbeat=str(self.heartbeat_seconds)),
                    client_properties={"connection_name": f"{self.instance} {purpose}"},
                    connection_class=Connection,
                )
        except BaseException:
            # Also when a caller's own, shorter time is over: a mute node would otherwise be tried for ever.
            self._turn += 1
            raise
        if is_again:
            self.on_reconnect(purpose)
        return opened
