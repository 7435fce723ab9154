"""A queue of letters, and the two ends of it that these tests are about."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.broker.publisher import Publisher
from dlq_handler.dead_letters.letter import DeadLetter
from tests.integration.broker.letterbox import Letterbox
from tests.support.builders import read
from tests.support.tcp_proxy import TcpProxy

SourceFactory = Callable[..., QueueConsumer[DeadLetter]]
PublisherFactory = Callable[..., Publisher]


@pytest.fixture
async def letterbox(vhost: str) -> AsyncIterator[Letterbox]:
    async with Letterbox.at(vhost) as box:
        yield box


@pytest.fixture
async def proxy(vhost: str) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.to(vhost) as proxy:
        yield proxy


@pytest.fixture
async def a_source(vhost: str) -> AsyncIterator[SourceFactory]:
    """Makes sources that are closed at the end; what a test is not about is plausible."""
    made: list[QueueConsumer[DeadLetter] | AdminConnection] = []

    def make(*, url: str = vhost, heartbeat_seconds: int = 10, **changes: Any) -> QueueConsumer[DeadLetter]:
        settings: dict[str, Any] = {
            "queue": Letterbox.QUEUE,
            "prefetch": 200,
            "batch_size": 100,
            "batch_wait_seconds": 0.05,
            "max_bytes": 64_000_000,
            "max_body_bytes": 2**20,
            "read": read,
        }
        address = BrokerAddress(urls=[url], heartbeat_seconds=heartbeat_seconds)
        admin = AdminConnection(address, call_timeout_seconds=changes.get("call_timeout_seconds", 10.0))
        source = QueueConsumer(address, admin, **(settings | changes))
        made.extend((source, admin))
        return source

    yield make
    async with asyncio.timeout(30):
        for opened in made:
            await opened.close()


@pytest.fixture
async def a_publisher(vhost: str) -> AsyncIterator[PublisherFactory]:
    made: list[Publisher] = []

    def make(*, url: str = vhost, publish_timeout_seconds: float = 10.0) -> Publisher:
        publisher = Publisher(BrokerAddress(urls=[url]), publish_timeout_seconds=publish_timeout_seconds)
        made.append(publisher)
        return publisher

    yield make
    async with asyncio.timeout(30):
        for publisher in made:
            await publisher.close()
