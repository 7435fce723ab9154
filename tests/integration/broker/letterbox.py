"""A queue that tests put letters into and look into: sound letters, and bytes that no client library would send."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from dlq_handler.broker.delivery import Delivery
from dlq_handler.dead_letters.letter import DeadLetter
from tests.support.builders import a_body, an_x_death
from tests.support.raw_publish import publish_bytes


class Letterbox:
    QUEUE: ClassVar[str] = "letters"
    EXCHANGE: ClassVar[str] = "anything"
    """Everything sent to it gets into the queue, whatever its routing key."""

    def __init__(self, channel: aio_pika.abc.AbstractChannel) -> None:
        self._channel = channel

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str) -> AsyncIterator[Self]:
        async with await aio_pika.connect(url, timeout=10) as connection:
            box = cls(await connection.channel())
            await box.declare(cls.QUEUE)
            exchange = await box._channel.declare_exchange(cls.EXCHANGE, aio_pika.ExchangeType.FANOUT)
            await (await box._channel.get_queue(cls.QUEUE)).bind(exchange)
            yield box

    async def declare(self, queue: str, **arguments: Any) -> None:
        await self._channel.declare_queue(queue, durable=True, arguments=arguments)

    async def declare_exchange(self, name: str) -> None:
        await self._channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC)

    async def delete_exchange(self, name: str) -> None:
        await self._channel.exchange_delete(name)

    async def delete_queue(self) -> None:
        await self._channel.queue_delete(self.QUEUE)

    async def put(
        self,
        *execution_ids: int,
        headers: Mapping[str, Any] | None = None,
        body: bytes | None = None,
    ) -> None:
        """One dispatch for each id, as it comes out of a worker's queue."""
        for execution_id in execution_ids:
            await self._channel.default_exchange.publish(
                aio_pika.Message(
                    body or json.dumps(a_body(execution_id=execution_id)).encode(),
                    headers=dict({"x-death": [an_x_death()]} if headers is None else headers),
                    message_id=f"m{execution_id}",
                ),
                self.QUEUE,
            )

    async def put_bytes(
        self, properties: bytes, *, body: bytes = b"{}", routing_key: bytes = b"execution.dispatch.worker.7"
    ) -> None:
        """A message with these bytes for properties, flags included."""
        channel = await self._channel.get_underlay_channel()
        await publish_bytes(channel, self.EXCHANGE, routing_key=routing_key, properties=properties, body=body)
        # An answer to this means that the broker has taken the bytes before it.
        await self._channel.declare_queue(self.QUEUE, passive=True)

    async def ready(self, queue: str | None = None) -> int:
        """How many letters wait in the queue, without those that a consumer holds."""
        channel = await self._channel.get_underlay_channel()
        answer = await channel.queue_declare(queue or self.QUEUE, passive=True)
        return answer.message_count or 0

    async def take(self, queue: str | None = None) -> AbstractIncomingMessage:
        message = await (await self._channel.get_queue(queue or self.QUEUE)).get(no_ack=True)
        assert message is not None
        return message


def execution_ids(deliveries: list[Delivery[DeadLetter]]) -> list[int | None]:
    return [delivery.item.execution_id for delivery in deliveries]
