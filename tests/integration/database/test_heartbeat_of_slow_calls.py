"""A call to a silent server counts as turning for as long as its own timeout, however long that is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dlq_handler import health as module
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.outgoing import OutgoingMessage
from dlq_handler.broker.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.health import Liveness, heartbeat
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy

LONG_SECONDS = 3600.0
MESSAGE = OutgoingMessage(message_id="1", correlation_id="1", exchange="", routing_key="none", body=b"{}")


@pytest.fixture
async def silent_broker(vhost: str) -> AsyncIterator[BrokerAddress]:
    async with TcpProxy.to(vhost) as proxy:
        proxy.freeze()
        yield BrokerAddress(urls=[proxy.url], connect_timeout_seconds=LONG_SECONDS)


async def turns_while(work: Callable[[], Awaitable[object]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    now, reached = [0.0], asyncio.Event()
    liveness = Liveness(lambda: now[0])

    async def loop() -> None:
        liveness.watch()
        with heartbeat("loop"):
            reached.set()
            await work()

    task = asyncio.create_task(loop())
    try:
        await reached.wait()
        for _ in range(3):
            now[0] += LONG_SECONDS
            await eventually(lambda: liveness.stalls() == [], timeout=10)
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_transaction(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with TcpProxy.to(database) as proxy:
        proxy.freeze()
        store = Database(proxy.url, connect_timeout_seconds=LONG_SECONDS)
        await turns_while(store.ping, monkeypatch)
        await store.dispose()


async def test_a_connection_to_the_broker(
    silent_broker: BrokerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    await turns_while(lambda: silent_broker.connect("test"), monkeypatch)


async def test_a_publish(silent_broker: BrokerAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher(silent_broker, publish_timeout_seconds=LONG_SECONDS)
    await turns_while(lambda: publisher.publish([MESSAGE]), monkeypatch)


async def test_waiting_while_another_task_connects(
    silent_broker: BrokerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AdminConnection(silent_broker) as link:
        other = asyncio.create_task(link.open())
        await asyncio.sleep(0)
        await turns_while(link.open, monkeypatch)
        other.cancel()
        await asyncio.wait([other])
