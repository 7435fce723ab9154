"""Connections: opened in turn, ended for certain, and no secret in what they say."""

import asyncio

import aiormq.connection
import pytest
from aiormq.base import FutureStore
from yarl import URL

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client import connection
from dlq_handler.broker.client.broker_errors import broker_errors
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.broker.outgoing import OutgoingMessage
from dlq_handler.broker.publisher import Publisher
from dlq_handler.errors import Unavailable
from tests.integration.broker.letterbox import Letterbox
from tests.support.builders import read
from tests.support.tcp_proxy import TcpProxy

NO_BROKER = "amqp://guest:guest@127.0.0.1:1/"
FOR_EVER = 3600.0


async def test_after_a_failure_the_next_node_is_tried(vhost: str) -> None:
    address = BrokerAddress(urls=[NO_BROKER, vhost])

    with pytest.raises(Unavailable, match=r"connect to 127\.0\.0\.1:1: nothing listens there"):
        await address.connect("test")
    opened = await address.connect("test")

    assert not opened.is_closed
    await opened.end()
    assert opened.is_closed


async def test_after_a_silent_node_the_next_one_is_tried_also_when_the_caller_gave_up(
    vhost: str, proxy: TcpProxy
) -> None:
    address = BrokerAddress(urls=[proxy.url, vhost], connect_timeout_seconds=FOR_EVER)
    proxy.freeze()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await address.connect("test")

    async with asyncio.timeout(20):
        await (await address.connect("test")).end()


async def test_a_wrong_password_is_refused_without_repeating_it(vhost: str) -> None:
    address = BrokerAddress(urls=[str(URL(vhost).with_password("not-the-password"))])

    with pytest.raises(Unavailable) as refused:
        await address.connect("test")

    assert "refuses this user or its password (message_queue.url)" in str(refused.value)
    assert "not-the-password" not in str(refused.value) + repr(address)


async def test_a_call_that_the_client_ends_without_a_reason_is_a_lost_connection() -> None:
    calls = FutureStore(asyncio.get_running_loop())
    call = calls.create_future()
    await calls.reject_all(None)

    with pytest.raises(Unavailable, match="ask: the connection was lost"):
        async with broker_errors("ask"):
            await call
    with pytest.raises(KeyError):
        async with broker_errors("ask"):
            raise KeyError("a bug of our own")


async def test_dropping_a_connection_does_not_wait_for_the_peer(
    proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLOSE_TIMEOUT_SECONDS", FOR_EVER)
    monkeypatch.setattr(aiormq.connection.Connection, "READER_CLOSE_TIMEOUT", FOR_EVER)
    opened = await BrokerAddress(urls=[proxy.url]).connect("test")
    proxy.freeze()

    async with asyncio.timeout(20):
        await opened.drop()

    assert opened.is_closed


async def test_a_peer_that_never_answers_our_close_is_left_after_a_while(
    proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLOSE_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(aiormq.connection.Connection, "READER_CLOSE_TIMEOUT", FOR_EVER)
    opened = await BrokerAddress(urls=[proxy.url]).connect("test")
    proxy.freeze()

    async with asyncio.timeout(20):
        await opened.end()
        await opened.end()


async def test_a_call_that_the_client_cancels_by_itself_is_a_lost_connection() -> None:
    with pytest.raises(Unavailable, match="publish: the connection was lost"):
        async with broker_errors("publish"):
            raise asyncio.CancelledError


async def test_a_task_that_is_cancelled_stays_cancelled() -> None:
    async def waiting() -> None:
        async with broker_errors("publish"):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(waiting())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_only_a_connection_that_replaces_another_is_reported_as_a_reconnect(
    vhost: str, letterbox: Letterbox
) -> None:
    reconnects: list[str] = []
    address = BrokerAddress(urls=[vhost], on_reconnect=reconnects.append)
    publisher, link = Publisher(address, publish_timeout_seconds=10), AdminConnection(address)
    source = QueueConsumer(
        address,
        link,
        queue=letterbox.QUEUE,
        prefetch=1,
        batch_size=1,
        batch_wait_seconds=0,
        max_bytes=1000,
        max_body_bytes=2**20,
        read=read,
    )
    message = OutgoingMessage(
        message_id="1", correlation_id="1", exchange=letterbox.EXCHANGE, routing_key="any", body=b"{}"
    )
    for _ in range(2):
        await source.open()
        await publisher.publish([message])
        await link.open()
        for part in (source, publisher, link):
            await part.close()
    assert reconnects == ["intake", "publisher", "topology"]
