"""The watch believes the broker, not the client: a consumer that the broker does not know is rebuilt."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from math import isnan

import aio_pika
import httpx
import pytest
from aio_pika.abc import AbstractIncomingMessage
from structlog.testing import capture_logs

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.endings.writers import RecordsWriter
from dlq_handler.errors import Braked, Unavailable
from dlq_handler.health import Readiness
from dlq_handler.rooms import new_metrics
from dlq_handler.topology.intake_watch import LISTED_WITHIN_SECONDS, IntakeWatch
from sandbox.servers import RabbitMQ
from tests.support.builders import an_x_death, read
from tests.support.eventually import eventually

QUEUE = "attune.dlx.queue"


HALF_AN_HOUR = timedelta(minutes=30)


async def ignore(_: AbstractIncomingMessage) -> None:
    """No letter comes in these tests."""


class Fixture:
    def __init__(self, amqp_url: str, management_url: str) -> None:
        address = BrokerAddress(urls=[amqp_url])
        self.admin = AdminConnection(address)
        self.source = QueueConsumer(
            address,
            self.admin,
            queue=QUEUE,
            prefetch=10,
            batch_size=5,
            batch_wait_seconds=0.01,
            max_bytes=2**20,
            max_body_bytes=2**20,
            read=read,
            consumer_tag="dlq-handler.one",
        )
        self.readiness, self.metrics = Readiness(), new_metrics()
        self.api = ManagementApi(management_url, vhost=amqp_url.rpartition("/")[2])
        self.writer = RecordsWriter()
        self.watch = IntakeWatch(
            self.source,
            self.writer,
            api=self.api,
            own_tag_prefix="dlq-handler.",
            readiness=self.readiness,
            metrics=self.metrics,
            now=lambda: self.seconds,
        )
        self.seconds = 0.0

    async def is_full(self) -> None:
        async def full() -> bool:
            return self.source.outstanding == 10

        await eventually(full)

    def messages(self) -> float:
        number = self.metrics.registry.get_sample_value("dlq_handler_dlq_messages")
        assert number is not None
        return number

    def oldest_age(self) -> float:
        age = self.metrics.registry.get_sample_value("dlq_handler_dlq_oldest_age_seconds")
        assert age is not None
        return age

    async def die(self) -> None:
        """Have the broker forget our consumer while the client goes on believing in it."""
        session = self.source._session
        assert session
        assert session._channel
        await session._channel.basic_cancel(self.source.consumer_tag)
        assert self.source.is_consuming


@pytest.fixture
async def it(vhost: str, rabbitmq: RabbitMQ) -> AsyncIterator[Fixture]:
    connection = await aio_pika.connect(vhost)
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE, durable=True)
        credentials = f"://{rabbitmq.user}:{rabbitmq.password}@"
        fixture = Fixture(vhost, rabbitmq.management_url.replace("://", credentials))
        await fixture.source.open()
        yield fixture
        await fixture.source.close()
        await fixture.admin.close()


async def test_registered_consumer_is_left_in_peace(it: Fixture) -> None:
    await it.watch.tick()
    assert it.source.is_consuming
    assert it.readiness.checks["broker"].ok
    assert it.watch.view.others == ()


async def test_consumer_that_the_broker_does_not_know_is_given_up(it: Fixture) -> None:
    await it.die()
    await it.watch.tick()
    assert not it.source.is_consuming
    with pytest.raises(Unavailable, match="no consumer of this replica"):
        await it.source.next_batch(timeout_seconds=5)


async def test_while_the_brake_holds_the_consumer_is_closed(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for a dead letter for hours: until then the replica would report that it is ready."""

    def hold() -> None:
        raise Braked("tripped")

    monkeypatch.setattr(it.writer, "check", hold)
    await it.watch.tick()
    assert not it.source.is_consuming


@asynccontextmanager
async def other_consumers(vhost: str, *tags: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    """Consumers that keep what they get, at most 7 messages each."""
    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=7)
        queue = await channel.get_queue(QUEUE, ensure=False)
        for tag in tags:
            await queue.consume(ignore, consumer_tag=tag)
        yield channel


async def until_listed(it: Fixture, consumers: int) -> None:
    async def are_listed() -> bool:
        return len(await it.api.consumer_tags(QUEUE)) == consumers

    await eventually(are_listed)


async def test_missing_consumer_is_noticed_although_others_consume(it: Fixture, vhost: str) -> None:
    async with other_consumers(vhost, "executor.dlq", "dlq-handler.two"):
        await it.die()
        await until_listed(it, 2)
        await it.watch.tick()
        assert not it.source.is_consuming
        assert it.watch.view.others == ("executor.dlq",)


async def test_another_replica_is_no_other_consumer(it: Fixture, vhost: str) -> None:
    async with other_consumers(vhost, "dlq-handler.two"):
        await until_listed(it, 2)
        await it.watch.tick()
        assert it.source.is_consuming
        assert it.watch.view.others == ()


async def test_a_consumer_that_is_not_listed_yet_is_reported_only_later(it: Fixture, vhost: str) -> None:
    """Another replica has just started, and the management API does not list its consumer for some seconds."""
    it.watch._api = Away("http://127.0.0.1:1", vhost="/")
    async with other_consumers(vhost, "dlq-handler.two"):
        with capture_logs() as log:
            await it.watch.tick()
            assert it.watch.view.unseen == 1, "a canary that it may have received is not lost"
            assert [one["event"] for one in log] == []
            it.seconds += LISTED_WITHIN_SECONDS
            await it.watch.tick()
            assert [one["event"] for one in log] == ["intake.shared"]


async def test_a_deleted_queue_makes_the_replica_unready(it: Fixture, vhost: str) -> None:
    connection = await aio_pika.connect(vhost)
    async with connection:
        channel = await connection.channel()
        await channel.queue_delete(QUEUE)
    with pytest.raises(Unavailable):
        await it.watch.tick()
    assert not it.readiness.checks["broker"].ok


async def test_the_age_of_the_oldest_letter_is_that_of_unacknowledged_ones(it: Fixture, vhost: str) -> None:
    await it.watch.tick()
    assert it.oldest_age() == 0, "nothing waits"
    died_at = datetime.now(UTC) - HALF_AN_HOUR
    connection = await aio_pika.connect(vhost)
    async with connection:
        channel = await connection.channel()
        letter = aio_pika.Message(b"{}", headers={"x-death": [an_x_death(time=died_at)]})
        await channel.default_exchange.publish(letter, QUEUE)
        await it.source.next_batch(timeout_seconds=20)
        await it.watch.tick()
        assert HALF_AN_HOUR.seconds - 1 <= it.oldest_age() <= HALF_AN_HOUR.seconds + 60
        await it.source._close_session()
        await it.watch.tick()
        assert isnan(it.oldest_age()), "one waits, and we do not hold it"


async def test_messages_counts_those_that_consumers_hold(it: Fixture, vhost: str) -> None:
    async with other_consumers(vhost) as channel:
        await put(channel, 25)
        await it.is_full()
        await it.watch.tick()
        assert it.messages() == 25, "15 are ready, this replica holds 10"
        async with other_consumers(vhost, "dlq-handler.two"):

            async def all_counted() -> bool:
                await it.watch.tick()
                return it.messages() == 25 and await it.api.unacknowledged(QUEUE) == 17

            await eventually(all_counted, timeout=30)

            # Without the management API the metric counts what this replica knows: 8 ready, 10 in its window.
            it.watch._api = Away("http://127.0.0.1:1", vhost="/")
            await it.watch.tick()
            assert it.messages() == 18


class Away(ManagementApi):
    async def _ask(self, client: httpx.AsyncClient, path: str) -> httpx.Response:
        raise Unavailable("management API", "away")


async def put(channel: aio_pika.abc.AbstractChannel, count: int) -> None:
    for _ in range(count):
        await channel.default_exchange.publish(aio_pika.Message(b"{}"), QUEUE)
