"""Publish a message of dlq-handler's own, to check whether the broker takes publishes now.

Promises: nothing of the host is touched, and nothing remains. The exchange and the queue have a new name for each
connection. The queue is exclusive, so it ends with the connection, and the exchange ends with its last queue.
"""

import asyncio
from uuid import uuid4

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelAccessRefused

from dlq_handler.broker.client.broker_errors import broker_errors
from dlq_handler.broker.client.connection import BrokerAddress, Connection
from dlq_handler.broker.publish.publish_check_names import PUBLISH_CHECK_PREFIX
from dlq_handler.broker.publish.publish_recorder import PublishRecorder
from dlq_handler.broker.publish.publishes import SLOW_AFTER_SECONDS

# A publish is known to be slow before this time is over, so there is no need to wait longer.
_GIVE_UP_SECONDS = 2 * SLOW_AFTER_SECONDS


class PublishCheckRefused(Exception):
    """The broker user lacks a right; the text names it."""


class PublishChecker:
    def __init__(self, address: BrokerAddress, recorder: PublishRecorder) -> None:
        self._address, self._recorder = address, recorder
        self._connection: Connection | None = None
        self._channel: AbstractChannel | None = None
        self._name = ""
        self._was_open = False

    async def publish(self) -> None:
        """Raises `Unavailable`, `PublishCheckRefused`."""
        channel = await self._open()
        try:
            async with broker_errors("publish a check"), asyncio.timeout(_GIVE_UP_SECONDS):
                with self._recorder.publishing() as publish:
                    await channel.basic_publish(b"{}", exchange=self._name, mandatory=True)
                    publish.is_confirmed = True
        except BaseException:
            await self._drop()
            raise

    async def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.end()

    async def _open(self) -> AbstractChannel:
        if self._channel is not None and not self._channel.is_closed:
            return self._channel
        await self._drop()
        self._connection = connection = await self._address.connect("publish check", is_again=self._was_open)
        self._was_open = True
        try:
            async with broker_errors("prepare a publish check"), asyncio.timeout(_GIVE_UP_SECONDS):
                self._channel = await self._declare(connection)
        except BaseException:
            await self._drop()
            raise
        return self._channel

    async def _declare(self, connection: Connection) -> AbstractChannel:
        confirming = connection.channel(publisher_confirms=True)
        await confirming.initialize()
        channel = await confirming.get_underlay_channel()
        self._name = f"{PUBLISH_CHECK_PREFIX}{uuid4()}"
        try:
            await channel.exchange_declare(self._name, exchange_type="fanout", auto_delete=True)
            await channel.queue_declare(
                self._name,
                exclusive=True,
                # Explicit, because a vhost may have another default type.
                arguments={"x-queue-type": "classic", "x-max-length": 1, "x-message-ttl": 1000},
            )
            await channel.queue_bind(self._name, self._name)
        except ChannelAccessRefused as refused:
            raise PublishCheckRefused(str(refused)) from refused
        return channel

    async def _drop(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.drop()
