"""A queue of letters, and the two ends of it that these tests are about."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dlq_handler.broker.connection import BrokerAddress
from dlq_handler.broker.dead_letter_source import DeadLetterSource
from dlq_handler.broker.publisher import Publisher
from tests.integration.broker.letterbox import Letterbox
from tests.support.tcp_proxy import TcpProxy

SourceFactory = Callable[..., DeadLetterSource]
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
    made: list[DeadLetterSource] = []

    def make(*, url: str = vhost, heartbeat_seconds: int = 10, **changes: Any) -> DeadLetterSource:
        settings: dict[str, Any] = {
            "queue": Letterbox.QUEUE,
            "prefetch": 200,
            "batch_size": 100,
            "batch_wait_seconds": 0.05,
            "max_bytes": 64_000_000,
            "body_limit_bytes": 65_536,
        }
        address = BrokerAddress(urls=[url], heartbeat_seconds=heartbeat_seconds)
        source = DeadLetterSource(address, **(settings | changes))
        made.append(source)
        return source

    yield make
    async with asyncio.timeout(30):
        for source in made:
            await source.close()


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
