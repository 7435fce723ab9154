"""One AMQP connection for topology work, opened when it is needed. It never publishes and never consumes.

A lost connection is not repaired: the next call opens another, and `incarnation` then differs, which tells
the caller that whatever it knew about the broker may be gone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self

import aio_pika.abc
from aiormq.abc import AbstractChannel

from dlq_handler.broker.connection import BrokerAddress, Connection, broker_errors
from dlq_handler.errors import Unavailable
from dlq_handler.heartbeat import turn


class AdminLink:
    """Hands out throw-away channels: a refused declare closes its channel, so none is worth keeping."""

    def __init__(self, address: BrokerAddress, *, call_timeout_seconds: float = 10.0) -> None:
        self._address = address
        self._call_timeout_seconds = call_timeout_seconds
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self.incarnation = 0

    async def open(self) -> int:
        """Connect if needed. The number of the connection in use: another number means another connection."""
        async with turn(self._opening):
            if self._connection is None or _is_lost(self._connection):
                self._connection = await self._address.connect("topology", is_again=self.incarnation > 0)
                self.incarnation += 1
        return self.incarnation

    @asynccontextmanager
    async def channel(
        self, doing: str, *, timeout_seconds: float | None = None
    ) -> AsyncIterator[AbstractChannel]:
        """A channel for a few calls that must end in time together. What they raise becomes `Unavailable`."""
        await self.open()
        connection = self._connection
        assert connection is not None  # noqa: S101  open() has just set it
        opening = asyncio.timeout(self._call_timeout_seconds)
        working = asyncio.timeout(timeout_seconds or self._call_timeout_seconds)
        try:
            async with broker_errors(doing):
                async with opening:
                    channel = await self._open_channel(connection)
                try:
                    async with working:
                        yield await channel.get_underlay_channel()
                finally:
                    await _close_soon(channel)
        except Unavailable:
            if opening.expired() or working.expired():
                # Perhaps half-open, which the heartbeat notices half a minute later: the next call opens another.
                self._connection = None
                await connection.drop()
            raise

    @staticmethod
    async def _open_channel(connection: Connection) -> aio_pika.abc.AbstractChannel:
        channel = connection.channel(publisher_confirms=False)
        await channel.initialize()
        return channel

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _is_lost(connection: Connection) -> bool:
    """Ask the transport: the connection itself only tells whether we closed it."""
    transport = connection.transport
    return connection.is_closed or transport is None or transport.connection.is_closed


async def _close_soon(channel: aio_pika.abc.AbstractChannel) -> None:
    """Close without a second wait: over a half-open connection the close is not answered either."""
    if channel.is_closed:
        return
    with suppress(Unavailable):
        async with broker_errors("close a channel"), asyncio.timeout(1):
            await channel.close()
