"""What every broker behind `PubSubBackend` must do, by the source document's words, and RabbitMQ held to it.

For another backend: a subclass of `PubSubConformance` with a fixture `broker`, as `TestRabbitMQ`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import aio_pika
import pytest

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueMissing
from dlq_handler.broker.delivery import Delivery, RawMessage
from dlq_handler.broker.outgoing import Confirmed, Unroutable
from dlq_handler.broker.pubsub import (
    Consumer,
    ExchangeMissing,
    PubSubBackend,
    QueueDiffers,
    QueueInUse,
    QueueType,
)
from dlq_handler.broker.rabbitmq_backend import RabbitMQBackend
from dlq_handler.errors import Unavailable
from tests.support.tcp_proxy import TcpProxy

EXCHANGE = "things"
TOPIC = f"{EXCHANGE}:thing.made"
QUEUE = "things.queue"


@dataclass(frozen=True, slots=True)
class Body:
    """The least that a consumer's item is."""

    text: str
    held_bytes: int = 0
    order_key: int | None = None
    died_at: datetime | None = None
    is_canary: bool = False


def read_body(raw: RawMessage) -> Body:
    return Body(raw.body.decode())


class BrokerUnderTest(Protocol):
    """A real broker on which the exchange `EXCHANGE` exists, and a network to it that can stop."""

    @property
    def backend(self) -> PubSubBackend: ...

    @property
    def call_timeout_seconds(self) -> float:
        """The backend's own bound of a call."""

    def stop_network(self) -> None:
        """From now on no byte passes, and no connection is closed."""


class PubSubConformance:
    @pytest.fixture
    def backend(self, broker: BrokerUnderTest) -> PubSubBackend:
        return broker.backend

    # create_queue

    async def test_create_makes_a_queue_that_receives_its_topic(self, backend: PubSubBackend) -> None:
        assert await backend.create_queue(TOPIC, QUEUE) is True
        await send(backend, "one")
        assert await received(backend) == ["one"]

    async def test_create_is_idempotent_with_the_same_properties(self, backend: PubSubBackend) -> None:
        await backend.create_queue(TOPIC, QUEUE, ttl_ms=60_000, dlx=EXCHANGE)
        await send(backend, "kept")
        assert await backend.create_queue(TOPIC, QUEUE, ttl_ms=60_000, dlx=EXCHANGE) is False
        assert await received(backend) == ["kept"]

    async def test_create_with_another_property_fails_and_names_both_values(
        self, backend: PubSubBackend
    ) -> None:
        await backend.create_queue(TOPIC, QUEUE, ttl_ms=60_000)
        with pytest.raises(QueueDiffers) as refused:
            await backend.create_queue(TOPIC, QUEUE, ttl_ms=30_000)
        assert (refused.value.queue, refused.value.wanted, refused.value.current) == (QUEUE, 30_000, 60_000)
        assert "60000" in str(refused.value)
        assert "30000" in str(refused.value)

    async def test_create_of_another_type_fails_and_names_both_types(self, backend: PubSubBackend) -> None:
        await backend.create_queue(TOPIC, QUEUE, type=QueueType.QUORUM)
        with pytest.raises(QueueDiffers) as refused:
            await backend.create_queue(TOPIC, QUEUE, type=QueueType.CLASSIC)
        assert (refused.value.wanted, refused.value.current) == ("classic", "quorum")

    async def test_create_for_a_second_topic_adds_it(self, backend: PubSubBackend) -> None:
        await backend.create_queue(TOPIC, QUEUE)
        assert await backend.create_queue(f"{EXCHANGE}:thing.lost", QUEUE) is False
        await send(backend, "one")
        await send(backend, "two", topic=f"{EXCHANGE}:thing.lost")
        assert sorted(await received(backend, 2)) == ["one", "two"]

    async def test_create_on_a_missing_exchange_makes_nothing(self, backend: PubSubBackend) -> None:
        with pytest.raises(ExchangeMissing, match="'nothing'"):
            await backend.create_queue("nothing:key", QUEUE)
        assert not await backend.queue_exists("nothing:key", QUEUE)

    # delete_queue

    async def test_delete_removes_the_queue(self, backend: PubSubBackend) -> None:
        await backend.create_queue(TOPIC, QUEUE)
        assert await backend.delete_queue(TOPIC, QUEUE) is True
        assert not await backend.queue_exists(TOPIC, QUEUE)

    async def test_delete_is_idempotent(self, backend: PubSubBackend) -> None:
        assert await backend.delete_queue(TOPIC, QUEUE) is False
        await backend.create_queue(TOPIC, QUEUE)
        await backend.delete_queue(TOPIC, QUEUE)
        assert await backend.delete_queue(TOPIC, QUEUE) is False

    @pytest.mark.parametrize("kind", QueueType)
    async def test_delete_refuses_a_queue_with_messages(
        self, backend: PubSubBackend, kind: QueueType
    ) -> None:
        await backend.create_queue(TOPIC, QUEUE, type=kind)
        await send(backend, "kept")
        assert await refuses(backend, ready=1, consumers=0)
        assert await received(backend) == ["kept"]

    @pytest.mark.parametrize("kind", QueueType)
    async def test_delete_refuses_a_queue_with_a_consumer(
        self, backend: PubSubBackend, kind: QueueType
    ) -> None:
        await backend.create_queue(TOPIC, QUEUE, type=kind)
        async with a_consumer(backend) as consumer:
            assert await refuses(backend, ready=0, consumers=1)
            await send(backend, "still delivered")
            assert texts(await consumer.next_batch()) == ["still delivered"]

    @pytest.mark.parametrize("kind", QueueType)
    async def test_delete_takes_an_empty_queue_of_each_type(
        self, backend: PubSubBackend, kind: QueueType
    ) -> None:
        await backend.create_queue(TOPIC, QUEUE, type=kind)
        assert await backend.delete_queue(TOPIC, QUEUE) is True
        assert not await backend.queue_exists(TOPIC, QUEUE)

    @pytest.mark.parametrize("kind", QueueType)
    async def test_delete_drops_messages_only_when_asked(
        self, backend: PubSubBackend, kind: QueueType
    ) -> None:
        await backend.create_queue(TOPIC, QUEUE, type=kind)
        await send(backend, "dropped")
        assert await backend.delete_queue(TOPIC, QUEUE, discard=True) is True
        assert not await backend.queue_exists(TOPIC, QUEUE)

    async def test_delete_raises_any_other_error(self, broker: BrokerUnderTest) -> None:
        """The source's own code swallowed them all, so its retries never ran."""
        await broker.backend.create_queue(TOPIC, QUEUE)
        broker.stop_network()
        with pytest.raises(Unavailable):
            await broker.backend.delete_queue(TOPIC, QUEUE)

    # queue_exists

    async def test_exists_is_a_question_that_creates_nothing(self, backend: PubSubBackend) -> None:
        assert not await backend.queue_exists(TOPIC, QUEUE)
        assert not await backend.queue_exists(TOPIC, QUEUE)
        await backend.create_queue(TOPIC, QUEUE)
        assert await backend.queue_exists(TOPIC, QUEUE)

    async def test_exists_does_not_answer_no_when_the_broker_does_not_answer(
        self, broker: BrokerUnderTest
    ) -> None:
        await broker.backend.create_queue(TOPIC, QUEUE)
        broker.stop_network()
        with pytest.raises(Unavailable):
            await broker.backend.queue_exists(TOPIC, QUEUE)

    # ensure_queue

    async def test_ensure_creates_a_missing_queue(self, backend: PubSubBackend) -> None:
        assert await backend.ensure_queue(TOPIC, QUEUE, ttl_ms=60_000) is True
        assert await backend.ensure_queue(TOPIC, QUEUE, ttl_ms=60_000) is False
        await send(backend, "one")
        assert await received(backend) == ["one"]

    async def test_ensure_leaves_an_existing_queue_as_it_is(self, backend: PubSubBackend) -> None:
        await backend.create_queue(TOPIC, QUEUE, ttl_ms=60_000)
        await send(backend, "kept")
        assert await backend.ensure_queue(TOPIC, QUEUE, ttl_ms=30_000) is False
        assert await received(backend) == ["kept"]

    # create_producer, create_consumer

    async def test_a_consumer_never_creates_its_queue(self, backend: PubSubBackend) -> None:
        with pytest.raises(QueueMissing, match=f"'{QUEUE}'"):
            await backend.create_consumer(TOPIC, QUEUE, read=read_body)
        assert not await backend.queue_exists(TOPIC, QUEUE)

    async def test_a_consumer_does_not_bring_back_a_deleted_queue(self, backend: PubSubBackend) -> None:
        await backend.create_queue(TOPIC, QUEUE)
        async with a_consumer(backend) as consumer:
            await backend.delete_queue(TOPIC, QUEUE, discard=True)
            with pytest.raises(Unavailable, match=f"'{QUEUE}'"):
                await consumer.next_batch()
        assert not await backend.queue_exists(TOPIC, QUEUE)

    async def test_a_message_without_acknowledgment_returns_to_its_queue(
        self, backend: PubSubBackend
    ) -> None:
        await backend.create_queue(TOPIC, QUEUE)
        await send(backend, "one")
        async with a_consumer(backend) as consumer:
            assert texts(await consumer.next_batch()) == ["one"]
        assert await received(backend) == ["one"]
        assert await backend.delete_queue(TOPIC, QUEUE) is True

    async def test_a_message_that_no_queue_receives_is_unroutable(self, backend: PubSubBackend) -> None:
        producer = await backend.create_producer(TOPIC)
        outcome = await producer.send(b"lost", message_id="1", correlation_id="1")
        assert isinstance(outcome, Unroutable)

    async def test_a_producer_for_a_missing_exchange_fails_at_once(self, backend: PubSubBackend) -> None:
        with pytest.raises(ExchangeMissing, match="'nothing'"):
            await backend.create_producer("nothing:key")

    async def test_a_closed_producer_sends_nothing(self, backend: PubSubBackend) -> None:
        await backend.create_queue(TOPIC, QUEUE)
        producer = await backend.create_producer(TOPIC)
        await producer.close()
        await producer.close()
        with pytest.raises(Unavailable, match="closed"):
            await producer.send(b"late", message_id="1", correlation_id="1")

    # close, names, time

    async def test_close_ends_consumers_and_may_be_repeated(self, backend: PubSubBackend) -> None:
        await backend.create_queue(TOPIC, QUEUE)
        consumer = await backend.create_consumer(TOPIC, QUEUE, read=read_body)
        await backend.close()
        await backend.close()
        with pytest.raises(Unavailable):
            await consumer.next_batch()

    @pytest.mark.parametrize(("topic", "queue"), [("no-colon", QUEUE), (TOPIC, ""), (":other", QUEUE)])
    async def test_an_invalid_name_is_refused_before_the_broker_is_asked(
        self, backend: PubSubBackend, topic: str, queue: str
    ) -> None:
        with pytest.raises(ValueError, match="Invalid"):
            await backend.create_queue(topic, queue)

    async def test_the_nameless_exchange_routes_to_the_queue_itself(self, backend: PubSubBackend) -> None:
        assert await backend.create_queue(f":{QUEUE}", QUEUE) is True
        assert await backend.ensure_queue(f":{QUEUE}", QUEUE) is False
        await send(backend, "direct", topic=f":{QUEUE}")
        assert await received(backend) == ["direct"]

    async def test_a_call_without_an_answer_is_bounded(self, broker: BrokerUnderTest) -> None:
        await broker.backend.create_queue(TOPIC, QUEUE)
        broker.stop_network()
        # The bound itself, one second to close, and what a busy machine takes.
        async with asyncio.timeout(broker.call_timeout_seconds + 20):
            with pytest.raises(Unavailable):
                await broker.backend.create_queue(TOPIC, "another")


async def send(backend: PubSubBackend, text: str, *, topic: str = TOPIC) -> None:
    producer = await backend.create_producer(topic)
    outcome = await producer.send(text.encode(), message_id=text, correlation_id=text)
    assert isinstance(outcome, Confirmed), outcome
    await producer.close()


async def received(backend: PubSubBackend, number: int = 1) -> list[str]:
    """Take so many messages, and acknowledge them."""
    found: list[str] = []
    async with a_consumer(backend) as consumer:
        while len(found) < number:
            batch = await consumer.next_batch(timeout_seconds=20)
            assert batch, f"only {found} arrived"
            found += texts(batch)
            await consumer.acknowledge(batch)
    return found


@asynccontextmanager
async def a_consumer(backend: PubSubBackend) -> AsyncIterator[Consumer[Body]]:
    consumer = await backend.create_consumer(TOPIC, QUEUE, read=read_body)
    try:
        yield consumer
    finally:
        await consumer.close()


def texts(batch: list[Delivery[Body]]) -> list[str]:
    return [delivery.item.text for delivery in batch]


async def refuses(backend: PubSubBackend, *, ready: int, consumers: int) -> bool:
    """The queue is not deleted, and the error has these counts."""
    with pytest.raises(QueueInUse) as refused:
        await backend.delete_queue(TOPIC, QUEUE)
    return (refused.value.queue, refused.value.ready, refused.value.consumers) == (QUEUE, ready, consumers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMQUnderTest:
    backend: RabbitMQBackend
    proxy: TcpProxy
    call_timeout_seconds: float

    def stop_network(self) -> None:
        self.proxy.freeze()


class TestRabbitMQ(PubSubConformance):
    @pytest.fixture
    async def broker(self, vhost: str, proxy: TcpProxy) -> AsyncIterator[RabbitMQUnderTest]:
        async with await aio_pika.connect(vhost, timeout=10) as connection:
            channel = await connection.channel()
            await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
        seconds = 2.0
        backend = RabbitMQBackend(BrokerAddress(urls=[proxy.url]), call_timeout_seconds=seconds)
        yield RabbitMQUnderTest(backend=backend, proxy=proxy, call_timeout_seconds=seconds)
        await proxy.heal()
        async with asyncio.timeout(30):
            await backend.close()
