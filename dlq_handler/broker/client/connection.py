"""Open AMQP connections and end them, also without the peer's help.

Connections are plain, not robust: a robust one declares deleted queues again by itself, shows "connected" without a
consumer, and hangs in calls while the broker is unreachable. A plain connection that is lost stays lost. Its user opens
the next one, to the next URL, when it is ready for it.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aio_pika
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from aiormq.exceptions import ChannelInvalidStateError
from yarl import URL

from dlq_handler.broker.client import decoders
from dlq_handler.broker.client.broker_errors import broker_errors
from dlq_handler.broker.client.supported import assert_supported
from dlq_handler.errors import Unavailable
from dlq_handler.health import bounded

CLOSE_TIMEOUT_SECONDS = 5.0

# The option SO_LINGER, switched on, with 0 seconds.
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class _SocketKeeper(TransportFactory):
    """Opens the socket as aiormq does and keeps it: aiormq itself gives no access to it."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, self._writer = await factory.create(url, **options)
        return reader, self._writer

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    def reset(self) -> None:
        """Close with a reset, so that the kernel drops what the peer has not taken. It would retry it for minutes."""
        opened = None if self._writer is None else self._writer.get_extra_info("socket")
        if opened is not None:
            # Closed already: nothing is left to drop.
            with suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.abort()


class Connection(aio_pika.Connection):
    """A plain connection that can be ended without the peer's help."""

    def __init__(self, url: URL, **options: Any) -> None:
        super().__init__(url, **options)
        self._socket = _SocketKeeper()
        self.kwargs["transport_factory"] = self._socket

    @property
    def underlay(self) -> AbstractConnection | None:
        """aiormq's connection; None before it is open and after it is closed."""
        return None if self.transport is None else self.transport.connection

    @property
    def is_lost(self) -> bool:
        """Asks aiormq: `is_closed` of aio-pika is true only after its own `close`."""
        return self.is_closed or self.underlay is None or self.underlay.is_closed

    @property
    def is_blocked(self) -> bool:
        """True after the broker's message that it has stopped reading (connection.blocked)."""
        if self.underlay is None or self.underlay.is_closed:
            return False
        # aiormq has no property for it, but its `ready` waits exactly then: one step shows whether it would.
        waiting = self.underlay.ready()
        try:
            waiting.send(None)
        except StopIteration:
            return False
        waiting.close()
        return True

    async def open_channel(self) -> AbstractChannel:
        """aiormq's: each channel of aio-pika leaves callbacks on its connection, some KB until the connection ends."""
        if self.underlay is None:
            raise ChannelInvalidStateError("the connection was closed")
        await self.underlay.ready()
        return await self.underlay.channel(publisher_confirms=False)

    async def end(self) -> None:
        """Close with a handshake, within a time limit: a half-open peer never answers. Never fails."""
        with suppress(Unavailable):
            async with broker_errors("close the connection"), asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self.close()
        self.abort()

    async def drop(self) -> None:
        """End it at once. Bytes that the peer has not taken yet are dropped, not flushed. Never fails."""
        self._socket.reset()
        await self.end()

    def abort(self) -> None:
        """Close the socket without a handshake. The broker then requeues all unacknowledged deliveries."""
        self._socket.abort()


@dataclass(slots=True, kw_only=True)
class BrokerAddress:
    """One URL, or the nodes of a cluster, which are tried in turn.

    Raises `UnsupportedLibrary` when it is made: with other versions of the libraries no connection is safe.
    """

    urls: Sequence[str] = field(repr=False)
    heartbeat_seconds: int = 10
    connect_timeout_seconds: float = 5.0
    replica: str = "dlq-handler"
    on_reconnect: Callable[[str], None] = field(default=lambda _: None, repr=False)
    """Called with the purpose of each connection that replaces an earlier one."""
    _failures: int = 0

    def __post_init__(self) -> None:
        assert_supported()
        decoders.install()

    async def connect(self, purpose: str, *, is_again: bool = False) -> Connection:
        """Open one connection; the next call after a failure goes to the next node. `is_again`: it replaces one."""
        url = URL(self.urls[self._failures % len(self.urls)])
        try:
            # Without a time limit the handshake with a half-open peer never ends.
            async with (
                broker_errors(f"connect to {url.host}:{url.port or 5672}"),
                bounded(self.connect_timeout_seconds),
            ):
                opened = await aio_pika.connect(
                    url.update_query(heartbeat=str(self.heartbeat_seconds)),
                    client_properties={"connection_name": f"{self.replica} {purpose}"},
                    connection_class=Connection,
                )
        except BaseException:
            # Also when the caller ends it by a shorter limit: otherwise a node that never answers is tried for ever.
            self._failures += 1
            raise
        if is_again:
            self.on_reconnect(purpose)
        return opened
