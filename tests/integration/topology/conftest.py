"""The links to one test's vhost."""

from collections.abc import AsyncIterator
from urllib.parse import unquote, urlsplit

import pytest

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.connection import BrokerAddress
from dlq_handler.broker.management import ManagementApi
from dlq_handler.sandbox.attune.topology import verify_redeclare
from dlq_handler.sandbox.servers import RabbitMQ


@pytest.fixture
async def link(vhost: str) -> AsyncIterator[AdminLink]:
    async with AdminLink(BrokerAddress(urls=[vhost])) as opened:
        yield opened


@pytest.fixture
def vhost_name(vhost: str) -> str:
    return unquote(urlsplit(vhost).path.removeprefix("/"))


@pytest.fixture
def api(rabbitmq: RabbitMQ, vhost_name: str) -> ManagementApi:
    parts = urlsplit(rabbitmq.management_url)
    url = f"{parts.scheme}://{rabbitmq.user}:{rabbitmq.password}@{parts.netloc}"
    return ManagementApi(url, vhost=vhost_name)


@pytest.fixture
async def stock(vhost: str) -> None:
    """Stock Attune with the queues of worker 1, declared by its own services."""
    await verify_redeclare(vhost, {1: 300_000})
