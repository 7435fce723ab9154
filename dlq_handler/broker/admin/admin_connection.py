"""One AMQP connection for questions and declarations, opened when it is needed. It never publishes or consumes.

A lost connection is not repaired: the next call opens another. `incarnation` then differs, so the caller knows that
its earlier knowledge about the broker may be outdated.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelInvalidStateError

from dlq_handler.broker.client.broker_errors import broker_errors
from dlq_handler.broker.client.connection import BrokerAddress, Connection
from dlq_handler.errors import Unavailable
from dlq_handler.health import locked
from dlq_handler.tasks import StopCheck


class AdminConnection:
    """Opens a new channel for each use: a refused declare closes its channel."""

    def __init__(self, address: BrokerAddress, *, call_timeout_seconds: float = 10.0) -> None:
        self._address = address
        self._call_timeout_seconds = call_timeout_seconds
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self.incarnation = 0

    async def open(self) -> int:
        """Connect if needed. Returns `incarnation`, the running number of the connection in use."""
        async with locked(self._opening):
            if self._connection is None or self._connection.is_lost:
                self._connection = await self._address.connect("topology", is_again=self.incarnation > 0)
                self.incarnation += 1
        return self.incarnation

    @asynccontextmanager
    async def channel(
        self, doing: str, *, timeout_seconds: float | None = None
    ) -> AsyncIterator[AbstractChannel]:
        """A channel for a few calls, with one time limit for all of them. Their errors become `Unavailable`."""
        stop = StopCheck()
        await self.open()
        connection = self._connection
        assert connection is not None  # noqa: S101  open() has just set it
        opening = asyncio.timeout(self._call_timeout_seconds)
        working = asyncio.timeout(timeout_seconds or self._call_timeout_seconds)
        try:
            async with broker_errors(doing):
                async with opening:
                    channel = await connection.open_channel()
                try:
                    async with working:
                        yield channel
                finally:
                    await _close_soon(channel)
        except Unavailable as error:
            if opening.expired() or working.expired():
                # Perhaps half-open, which the heartbeat shows only half a minute later: the next call opens another.
                # Not `self.drop()`: another task may have opened the next one already.
                if self._connection is connection:
                    self._connection = None
                await connection.drop()
            if stop.is_stop:
                raise asyncio.CancelledError from error
            raise
        # aiormq swallows a cancellation that arrives while it closes a channel: Ctrl-C would have no effect.
        if stop.is_stop:
            raise asyncio.CancelledError

    async def drop(self) -> None:
        """Reset the connection: what it has not sent yet never reaches the broker. The next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.drop()

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


@asynccontextmanager
async def reason_of_close(channel: AbstractChannel) -> AsyncIterator[None]:
    """Around a call that follows one without a reply. The broker may have closed the channel already.

    aiormq then fails without the broker's reason. The reason is known a moment later, and it is raised instead.
    """
    try:
        yield
    except ChannelInvalidStateError:
        await channel.closing
        raise


async def _close_soon(channel: AbstractChannel) -> None:
    """Close within a second: over a half-open connection the broker never answers."""
    if channel.is_closed:
        return
    with suppress(Unavailable):
        async with broker_errors("close a channel"), asyncio.timeout(1):
            await channel.close()
