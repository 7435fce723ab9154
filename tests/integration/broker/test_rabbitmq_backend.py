"""What is special about RabbitMQ behind `PubSubBackend`; the rest is in test_pubsub.py."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueMissing
from dlq_handler.broker.outgoing import Confirmed, PublishOutcome, Unroutable
from dlq_handler.broker.pubsub import ExchangeMissing, QueueDiffers, QueueInUse, QueueType
from dlq_handler.broker.queue_arguments import queue_arguments
from dlq_handler.broker.rabbitmq_backend import RabbitMQBackend
from dlq_handler.errors import BrokerRightsMissing, Unavailable
from dlq_handler.host.owners import SYSTEM_QUEUES, queues_of_worker
from sandbox.attune.topology import verify_redeclare
from sandbox.servers import RabbitMQ
from tests.support.tcp_proxy import TcpProxy

TOPIC = "attune.executions:execution.dispatch.worker.7"
QUEUE = "worker.7.executions"
KINDS = pytest.mark.parametrize("kind", QueueType)


@pytest.fixture
async def backend(vhost: str, stock: None) -> AsyncIterator[RabbitMQBackend]:
    backend = RabbitMQBackend(BrokerAddress(urls=[vhost]))
    yield backend
    async with asyncio.timeout(30):
        await backend.close()


async def send(backend: RabbitMQBackend, topic: str = TOPIC) -> PublishOutcome:
    producer = await backend.create_producer(topic)
    return await producer.send(b"{}", message_id="1", correlation_id="1")


async def test_it_creates_queues_as_stock_services_declare_them(
    backend: RabbitMQBackend, link: AdminConnection, vhost: str
) -> None:
    """A queue with another argument would keep its service from starting."""
    for queue in SYSTEM_QUEUES:
        async with link.channel("prepare a test") as channel:
            await channel.queue_delete(queue.name)
    for queue in (*SYSTEM_QUEUES, *queues_of_worker(7)):
        made = [await backend.create_queue(topic, queue.name, **queue.properties) for topic in queue.topics]
        assert made == [True, *[False] * (len(made) - 1)]
    await verify_redeclare(vhost, {7: 300_000})
    for queue in (*SYSTEM_QUEUES, *queues_of_worker(7)):
        assert not any(
            [await backend.create_queue(topic, queue.name, **queue.properties) for topic in queue.topics]
        )


async def test_a_queue_that_is_not_durable_differs(backend: RabbitMQBackend, link: AdminConnection) -> None:
    async with link.channel("prepare a test") as channel:
        await channel.queue_declare(QUEUE, auto_delete=True, durable=True)
    with pytest.raises(QueueDiffers) as refused:
        await backend.create_queue(TOPIC, QUEUE)
    assert (refused.value.name, refused.value.wanted, refused.value.current) == (
        "auto_delete", "false", "true",
    )  # fmt: skip


async def test_an_unbound_queue_gets_nothing_more_and_a_bound_one_does(backend: RabbitMQBackend) -> None:
    await backend.create_queue(TOPIC, QUEUE)
    for _ in range(2):
        await backend.unbind(TOPIC, QUEUE)
        assert isinstance(await send(backend), Unroutable)
    for _ in range(2):
        await backend.bind(TOPIC, QUEUE)
    assert isinstance(await send(backend), Confirmed)
    counts = await backend.count(QUEUE)
    assert counts is not None
    assert (counts.ready, counts.consumers) == (1, 0)


async def test_a_missing_queue_or_exchange_is_named(backend: RabbitMQBackend) -> None:
    with pytest.raises(QueueMissing, match=f"'{QUEUE}'"):
        await backend.bind(TOPIC, QUEUE)
    await backend.create_queue(TOPIC, QUEUE)
    with pytest.raises(ExchangeMissing, match="'nothing'"):
        await backend.bind("nothing:key", QUEUE)
    await backend.unbind("nothing:key", QUEUE)
    await backend.unbind(TOPIC, "no.queue")
    assert await backend.count("no.queue") is None


async def test_a_message_that_a_channel_holds_without_a_consumer_is_not_counted(
    backend: RabbitMQBackend, link: AdminConnection
) -> None:
    """The one loss that the broker's check does not see. If this fails, the docstring of `delete_queue` is outdated."""
    await backend.create_queue(TOPIC, QUEUE)
    await send(backend)
    async with link.channel("hold a message") as channel:
        await channel.basic_get(QUEUE)
        assert await backend.delete_queue(TOPIC, QUEUE) is True


@KINDS
async def test_the_connection_survives_each_refused_delete(backend: RabbitMQBackend, kind: QueueType) -> None:
    """On a quorum queue the flags of a safe delete would end the whole connection."""
    await backend.create_queue(TOPIC, QUEUE, type=kind)
    await send(backend)
    before = await backend._admin.open()
    with pytest.raises(QueueInUse):
        await backend.delete_queue(TOPIC, QUEUE)
    assert await backend._admin.open() == before


async def test_a_quorum_queue_that_looks_classic_is_deleted_by_counts(
    backend: RabbitMQBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a vhost whose default type is quorum no probe shows the type."""

    async def looks_classic(_: RabbitMQBackend, __: str) -> bool:
        return True

    monkeypatch.setattr(RabbitMQBackend, "_is_classic", looks_classic)
    await backend.create_queue(TOPIC, QUEUE, type=QueueType.QUORUM)
    before = await backend._admin.open()
    assert await backend.delete_queue(TOPIC, QUEUE) is True
    assert await backend._admin.open() == before + 1, "the broker ended the connection"


async def test_a_missing_right_is_an_error_and_not_a_missing_queue(
    rabbitmq: RabbitMQ, backend: RabbitMQBackend, vhost: str, vhost_name: str
) -> None:
    await backend.create_queue(TOPIC, QUEUE)
    user = f"reader-{vhost_name}"
    await rabbitmq.ask("PUT", f"users/{user}", {"password": "p", "tags": ""})
    await rabbitmq.ask(
        "PUT", f"permissions/{vhost_name}/{user}", {"configure": "", "write": "", "read": ".*"}
    )
    as_reader = str(URL(vhost).with_user(user).with_password("p"))
    reader = RabbitMQBackend(BrokerAddress(urls=[as_reader]))
    try:
        with pytest.raises(BrokerRightsMissing):
            await reader.delete_queue(TOPIC, QUEUE)
        with pytest.raises(BrokerRightsMissing):
            await reader.create_queue(TOPIC, QUEUE)
        with pytest.raises(BrokerRightsMissing):
            await reader.unbind(TOPIC, QUEUE)
    finally:
        await reader.close()
        await rabbitmq.ask("DELETE", f"users/{user}")
    assert await backend.queue_exists(TOPIC, QUEUE)


async def test_a_call_that_is_stopped_resets_its_connection(
    backend: RabbitMQBackend, vhost: str, proxy: TcpProxy
) -> None:
    """The caller's transaction ends next: nothing that it began may reach the broker after that."""
    await backend.create_queue(TOPIC, QUEUE)
    stopped = RabbitMQBackend(BrokerAddress(urls=[proxy.url]), call_timeout_seconds=60)
    incarnation = await stopped._admin.open()
    proxy.freeze()
    call = asyncio.create_task(stopped.unbind(TOPIC, QUEUE))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    # What a frozen peer has not been sent is dropped with the connection, and the next call opens another.
    await proxy.heal()
    assert await stopped._admin.open() == incarnation + 1
    await stopped.close()
    assert isinstance(await send(backend), Confirmed)


async def test_a_call_that_takes_too_long_resets_its_connection(vhost: str, proxy: TcpProxy) -> None:
    slow = RabbitMQBackend(BrokerAddress(urls=[proxy.url]), call_timeout_seconds=0.5)
    incarnation = await slow._admin.open()
    proxy.freeze()
    with pytest.raises(Unavailable, match="no answer in time"):
        await slow.count(QUEUE)
    await proxy.heal()
    assert await slow._admin.open() == incarnation + 1
    await slow.close()


def test_a_classic_queue_has_no_argument_for_its_type() -> None:
    assert queue_arguments({"ttl_ms": 5, "dlx": "x", "type": QueueType.CLASSIC}) == {
        "x-message-ttl": 5,
        "x-dead-letter-exchange": "x",
    }
    assert queue_arguments({"type": QueueType.QUORUM}) == {"x-queue-type": "quorum"}
