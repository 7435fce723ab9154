"""RabbitMQ as a `PubSubBackend`: by AMQP alone, over a connection that nothing else uses.

Promises: a call ends within `call_timeout_seconds`, connecting included, and one more to close its channel. A call that
did not end by then has no late effect: its connection is reset, with what the network has not taken yet.
Never: creates an exchange, creates a queue for a consumer, deletes messages without `discard`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Unpack

from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, ConnectionNotImplemented

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import (
    BrokerRefusal,
    QueueCounts,
    count_queue,
    exchange_exists,
    probe_queue,
    read_refusal,
)
from dlq_handler.broker.admin.snapshot import TTL_ARGUMENT
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer, QueueMissing
from dlq_handler.broker.delivery import Item, RawMessage
from dlq_handler.broker.outgoing import OutgoingMessage, PublishOutcome
from dlq_handler.broker.publisher import Publisher
from dlq_handler.broker.pubsub import (
    Consumer,
    ExchangeMissing,
    QueueDiffers,
    QueueInUse,
    QueueProperties,
    QueueTopic,
    QueueType,
)
from dlq_handler.broker.queue_arguments import TYPE_ARGUMENT, queue_arguments
from dlq_handler.errors import Unavailable
from dlq_handler.health import bounded
from dlq_handler.tasks import StopCheck

CALL_TIMEOUT_SECONDS = 5.0

# Flags of every queue that this backend declares, as the broker names them when they differ.
_FLAGS = {"durable": "true", "auto_delete": "false", "exclusive": "false"}


class RabbitMQBackend:
    """One per runner: a call that takes too long resets the connection for all calls that are in progress."""

    def __init__(
        self,
        address: BrokerAddress,
        *,
        call_timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        prefetch: int = 200,
        batch_size: int = 100,
        max_bytes: int = 64_000_000,
        max_body_bytes: int = 1_048_576,
    ) -> None:
        """The last four are limits of each consumer."""
        self._address, self._call_timeout_seconds = address, call_timeout_seconds
        self._prefetch, self._batch_size = prefetch, batch_size
        self._max_bytes, self._max_body_bytes = max_bytes, max_body_bytes
        self._admin = AdminConnection(address, call_timeout_seconds=call_timeout_seconds)
        self._publisher = Publisher(address, publish_timeout_seconds=call_timeout_seconds)
        self._consumers = AsyncExitStack()

    async def create_producer(self, topic: str) -> "TopicProducer":
        target = QueueTopic.parse(topic)
        async with self._call(f"check topic {topic!r}"):
            await self._require_exchange(target)
        return TopicProducer(self._publisher, target)

    async def create_consumer(
        self, topic: str, subscription: str, *, read: Callable[[RawMessage], Item]
    ) -> Consumer[Item]:
        _parse(topic, subscription)
        consumer = QueueConsumer(
            self._address,
            self._admin,
            queue=subscription,
            prefetch=self._prefetch,
            batch_size=self._batch_size,
            batch_wait_seconds=0.05,
            max_bytes=self._max_bytes,
            read=read,
            max_body_bytes=self._max_body_bytes,
            call_timeout_seconds=self._call_timeout_seconds,
        )
        await consumer.open()
        self._consumers.push_async_callback(consumer.close)
        return consumer

    async def close(self) -> None:
        await self._consumers.aclose()
        await self._publisher.close()
        await self._admin.close()

    async def create_queue(
        self, topic: str, subscription: str, **properties: Unpack[QueueProperties]
    ) -> bool:
        """Does not see whether another program makes the same queue at the same moment: both then return True."""
        target = _parse(topic, subscription)
        async with self._call(f"create queue {subscription!r}"):
            await self._require_exchange(target)
            is_new = await count_queue(self._admin, subscription) is None
            await self._declare(subscription, properties)
            await self._bind(target, subscription)
        return is_new

    async def ensure_queue(
        self, topic: str, subscription: str, **properties: Unpack[QueueProperties]
    ) -> bool:
        if not await self.queue_exists(topic, subscription):
            return await self.create_queue(topic, subscription, **properties)
        await self.bind(topic, subscription)
        return False

    async def queue_exists(self, topic: str, subscription: str) -> bool:
        _parse(topic, subscription)
        return await self.count(subscription) is not None

    async def delete_queue(self, topic: str, subscription: str, *, discard: bool = False) -> bool:
        """A classic queue is checked and deleted by the broker in one step. Two kinds of loss remain:

        - A queue of another type (quorum, stream) has no such step: a message or consumer that arrives between the
          count and the delete, some milliseconds, is lost. Unbind the queue first.
        - RabbitMQ does not count messages that are delivered and not yet acknowledged. Their consumers show, but not a
          client that fetches single messages, or one that has canceled its consumer and still holds messages.
        """
        _parse(topic, subscription)
        async with self._call(f"delete queue {subscription!r}"):
            counts = await count_queue(self._admin, subscription)
            if counts is None:
                return False
            if discard:
                await self._delete(subscription)
                return True
            if await self._is_classic(subscription):
                try:
                    return await self._delete_atomically(subscription)
                except Unavailable as error:
                    # The broker ends the connection on these flags for any other type. Where the vhost has another
                    # default type, a probe cannot tell such a queue from a classic one.
                    if not isinstance(error.__cause__, ConnectionNotImplemented):
                        raise
            counts = await count_queue(self._admin, subscription)
            if counts is None:
                return False
            if counts.ready or counts.consumers:
                raise QueueInUse(subscription, ready=counts.ready, consumers=counts.consumers)
            await self._delete(subscription)
            return True

    async def count(self, subscription: str) -> QueueCounts | None:
        """Ready messages and consumers as of now; None: the queue does not exist."""
        async with self._call(f"count queue {subscription!r}"):
            return await count_queue(self._admin, subscription)

    async def bind(
        self, topic: str, subscription: str, *, arguments: Mapping[str, str] | None = None
    ) -> None:
        """Idempotent. Raises `QueueMissing`, `ExchangeMissing`.

        With other `arguments` it is another binding. A queue still gets each message once.
        """
        target = _parse(topic, subscription)
        async with self._call(f"bind queue {subscription!r}"):
            await self._bind(target, subscription, arguments)

    async def unbind(
        self, topic: str, subscription: str, *, arguments: Mapping[str, str] | None = None
    ) -> None:
        """Idempotent, also for a queue or an exchange that does not exist. A binding with other `arguments` stays."""
        target = _parse(topic, subscription)
        if not target.exchange:
            raise ValueError(f"Invalid topic {topic!r}: the default exchange cannot be unbound")
        async with (
            self._call(f"unbind queue {subscription!r}"),
            self._admin.channel(f"unbind queue {subscription!r}") as channel,
        ):
            await channel.queue_unbind(
                subscription, target.exchange, target.routing_key, arguments={**(arguments or {})}
            )

    async def _require_exchange(self, target: QueueTopic) -> None:
        if target.exchange and not await exchange_exists(self._admin, target.exchange):
            raise ExchangeMissing(target.exchange)

    async def _declare(self, queue: str, properties: QueueProperties) -> None:
        arguments = queue_arguments(properties)
        async with self._admin.channel(f"declare queue {queue!r}") as channel:
            try:
                await channel.queue_declare(queue, durable=True, arguments={**arguments})
            except ChannelPreconditionFailed as refused:
                refusal = read_refusal(str(refused))
                if refusal is None:
                    raise
                raise _differs(queue, arguments, refusal) from refused

    async def _bind(self, target: QueueTopic, queue: str, arguments: Mapping[str, str] | None = None) -> None:
        if not target.exchange:
            return
        async with self._admin.channel(f"bind queue {queue!r}") as channel:
            try:
                await channel.queue_bind(
                    queue, target.exchange, target.routing_key, arguments={**(arguments or {})}
                )
            except ChannelNotFoundEntity as missing:
                if await self.count(queue) is None:
                    raise QueueMissing(queue) from missing
                raise ExchangeMissing(target.exchange) from missing

    async def _is_classic(self, queue: str) -> bool:
        probed = await probe_queue(self._admin, queue, asked=(TTL_ARGUMENT,))
        return probed is None or probed.arguments.get(TYPE_ARGUMENT, QueueType.CLASSIC) == QueueType.CLASSIC

    async def _delete_atomically(self, queue: str) -> bool:
        async with self._admin.channel(f"delete queue {queue!r}") as channel:
            try:
                await channel.queue_delete(queue, if_unused=True, if_empty=True)
            except ChannelPreconditionFailed as refused:
                counts = await count_queue(self._admin, queue)
                if counts is None:
                    return False
                raise QueueInUse(queue, ready=counts.ready, consumers=counts.consumers) from refused
        return True

    async def _delete(self, queue: str) -> None:
        async with self._admin.channel(f"delete queue {queue!r}") as channel:
            await channel.queue_delete(queue)

    @asynccontextmanager
    async def _call(self, doing: str) -> AsyncIterator[None]:
        """One time limit for all steps of a call. When it is over, or the caller stops, the connection is reset."""
        stop = StopCheck()
        try:
            async with bounded(self._call_timeout_seconds):
                yield
        except TimeoutError as error:
            await self._admin.drop()
            raise Unavailable("broker", f"{doing}: no answer in time") from error
        except asyncio.CancelledError:
            # The caller's transaction ends next, and with it the caller's right to change the broker.
            if stop.is_stop:
                await self._admin.drop()
            raise


class TopicProducer:
    def __init__(self, publisher: Publisher, target: QueueTopic) -> None:
        self._publisher, self._target = publisher, target
        self._is_closed = False

    async def send(self, body: bytes, *, message_id: str, correlation_id: str) -> PublishOutcome:
        if self._is_closed:
            raise Unavailable("broker", f"the producer of {self._target} is closed")
        message = OutgoingMessage(
            message_id=message_id,
            correlation_id=correlation_id,
            exchange=self._target.exchange,
            routing_key=self._target.routing_key,
            body=body,
        )
        [outcome] = await self._publisher.publish([message])
        return outcome

    async def close(self) -> None:
        """The connection belongs to the backend, and stays open for its other producers."""
        self._is_closed = True


def _differs(queue: str, arguments: Mapping[str, str | int], refusal: BrokerRefusal) -> QueueDiffers:
    name, current = refusal.argument, refusal.current
    wanted = _FLAGS.get(name, arguments.get(name))
    if name == TYPE_ARGUMENT:
        wanted, current = wanted or QueueType.CLASSIC, current or QueueType.CLASSIC
    # Some refusals name a number without its type.
    if isinstance(current, str) and isinstance(wanted, int) and current.isdecimal():
        current = int(current)
    return QueueDiffers(queue, name, wanted=wanted, current=current)


def _parse(topic: str, subscription: str) -> QueueTopic:
    target = QueueTopic.parse(topic)
    if not subscription:
        raise ValueError("Invalid subscription '': must be the name of a queue")
    if not target.exchange and target.routing_key != subscription:
        raise ValueError(
            f"Invalid topic {topic!r} for queue {subscription!r}: the default exchange routes to the queue that the "
            f"key names, so the topic must be ':{subscription}'"
        )
    return target
