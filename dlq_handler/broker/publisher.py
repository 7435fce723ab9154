"""Publish messages and return the outcome of each: confirmed, unroutable, refused, or unknown.

Promises: messages are mandatory, persistent and confirmed. A batch takes two writes, and its confirms are awaited
together. A call ends within `publish_timeout_seconds`. `Unavailable` means that nothing was published; otherwise every
message has an outcome. Two messages with one id are never in flight together, because a return is matched by its id.
Never: keeps a connection with an unanswered publish, retries, or connects when there is nothing to publish.

`PublishChecker` publishes a message of dlq-handler's own, to check whether the broker takes publishes now.
"""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

from aiormq.exceptions import ChannelAccessRefused

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.broker_errors import broker_errors
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.outgoing import (
    PUBLISH_CHECK_PREFIX,
    Confirmed,
    OutgoingMessage,
    PublishOutcome,
    PublishRefused,
    Unanswered,
    Unroutable,
)
from dlq_handler.broker.publish_connection import PublishBatch, PublishConnection, parts_without_repeats
from dlq_handler.broker.publish_times import PublishRecorder
from dlq_handler.broker.queue_arguments import TYPE_ARGUMENT
from dlq_handler.errors import Unavailable
from dlq_handler.health import beating, locked

BLOCKED = "publishing is blocked: the broker is short of memory or disk space"


class Publisher:
    def __init__(
        self,
        address: BrokerAddress,
        *,
        publish_timeout_seconds: float,
        recorder: PublishRecorder | None = None,
    ) -> None:
        """`recorder` keeps how long each batch took."""
        self.address = address
        self.recorder = recorder or PublishRecorder()
        self._publish_timeout_seconds = publish_timeout_seconds
        self._connection: PublishConnection | None = None
        self._was_open = False
        # One batch at a time, so that two messages with one id are never in flight together.
        self._turn = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._connection is not None and self._connection.lost is None

    @property
    def is_blocked(self) -> bool:
        """The broker has stopped reading this connection, because of a memory or disk alarm."""
        return self._connection is not None and self._connection.is_blocked

    async def publish(self, messages: Sequence[OutgoingMessage]) -> list[PublishOutcome]:
        """One outcome per message, in order. `Unavailable`: none of them was published."""
        async with locked(self._turn):
            with self.recorder.publishing() as publish:
                try:
                    outcomes = await self._publish_in_parts(messages)
                finally:
                    publish.is_blocked = self.is_blocked
                publish.is_confirmed = any(isinstance(one, Confirmed) for one in outcomes)
        return outcomes

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.end()

    async def _publish_in_parts(self, messages: Sequence[OutgoingMessage]) -> list[PublishOutcome]:
        outcomes: list[PublishOutcome] = []
        deadline = asyncio.get_running_loop().time() + self._publish_timeout_seconds
        for part in parts_without_repeats(messages):
            try:
                with beating(self._publish_timeout_seconds):
                    outcomes += await self._publish(part, deadline)
            except Unavailable as error:
                if not outcomes:
                    raise
                outcomes += [PublishRefused(f"not sent: {error.what}")] * len(part)
        return outcomes

    async def _publish(self, part: Sequence[OutgoingMessage], deadline: float) -> list[PublishOutcome]:
        try:
            # Half of the time is kept for the confirms: a late start would only make outcomes unknown.
            begin_by = deadline - self._publish_timeout_seconds / 2
            async with broker_errors("publish"), asyncio.timeout_at(begin_by):
                connection = await self._open()
                missing = {
                    name for name in {m.exchange for m in part} if not await connection.has_exchange(name)
                }
                routed = [message for message in part if message.exchange not in missing]
                begun = await connection.begin(routed) if routed else None
        except BaseException as error:
            await self._drop()
            if isinstance(error, Unavailable) and self.is_blocked:
                raise Unavailable("broker", BLOCKED) from error
            raise
        answers = iter(await self._finish(connection, *begun, deadline) if begun else [])
        return [
            Unroutable(f"no exchange {message.exchange!r}") if message.exchange in missing else next(answers)
            for message in part
        ]

    async def _finish(
        self, connection: PublishConnection, batch: PublishBatch, payload: bytes, deadline: float
    ) -> list[PublishOutcome]:
        try:
            async with broker_errors("publish"), asyncio.timeout_at(deadline):
                await connection.finish(batch, payload)
        except Unavailable as error:
            connection.lose(error.what)
        except BaseException:
            connection.lose("cancelled")
            raise
        finally:
            if connection.lost is not None:
                await self._drop()
        return batch.outcomes(Unanswered(connection.lost or "no answer"))

    async def _open(self) -> PublishConnection:
        if self.is_blocked:
            raise Unavailable("broker", BLOCKED)
        if self._connection is not None and self._connection.lost is None:
            return self._connection
        await self._drop()
        self._connection = PublishConnection(await self.address.connect("publisher", is_again=self._was_open))
        self._was_open = True
        await self._connection.start()
        return self._connection

    async def _drop(self) -> None:
        """End a connection with an unfinished publish, and drop what was not sent yet.

        A blocked connection is kept until the alarm ends: its unblocked message shows that.
        """
        if self._connection is None:
            return
        self._connection.lose("given up")
        if not self._connection.is_blocked:
            connection, self._connection = self._connection, None
            await connection.drop()


class PublishCheckRefused(Exception):
    """The broker user lacks a right; the text names it."""


class PublishChecker:
    """Nothing of the host is touched, and nothing remains. The exchange and the queue have a new name for each
    connection. The queue is exclusive, so it ends with the connection that declared it, and the exchange ends with its
    last queue. The publisher is the one of the completion events: a broker that blocks publishes blocks its connection.
    """

    def __init__(self, admin: AdminConnection, publisher: Publisher) -> None:
        self._admin, self._publisher = admin, publisher
        self._declared_incarnation: int | None = None
        self._name = ""

    async def publish(self) -> None:
        """Raises `Unavailable`, `PublishCheckRefused`. The publisher's recorder keeps the result."""
        incarnation = await self._admin.open()
        if incarnation != self._declared_incarnation:
            await self._declare()
            self._declared_incarnation = incarnation
        check = OutgoingMessage(
            message_id=self._name, correlation_id=self._name, exchange=self._name, routing_key="", body=b"{}"
        )
        [outcome] = await self._publisher.publish([check])
        if not isinstance(outcome, Confirmed):
            # The queue may have been deleted: the next check declares another.
            self._declared_incarnation = None
            raise Unavailable("broker", f"a publish check was not confirmed: {outcome.text}")

    async def _declare(self) -> None:
        self._name = name = f"{PUBLISH_CHECK_PREFIX}{uuid4()}"
        async with self._admin.channel("prepare a publish check") as channel:
            try:
                await channel.exchange_declare(name, exchange_type="fanout", auto_delete=True)
                await channel.queue_declare(
                    name,
                    exclusive=True,
                    # Explicit, because a vhost may have another default type.
                    arguments={TYPE_ARGUMENT: "classic", "x-max-length": 1, "x-message-ttl": 1000},
                )
                await channel.queue_bind(name, name)
            except ChannelAccessRefused as refused:
                raise PublishCheckRefused(str(refused)) from refused
