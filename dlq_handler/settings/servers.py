"""Broker and management API as the settings describe them. Nothing is connected until it is used."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import unquote

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX, vhost_of
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.metrics import Metrics
from dlq_handler.settings.model import Settings
from dlq_handler.workers.connection_source import ConnectionSource


def broker_of(settings: Settings, *, metrics: Metrics | None = None) -> BrokerAddress:
    """`metrics` counts the reconnects of a replica; a command passes none."""
    broker = settings.dlq_handler.broker
    address = BrokerAddress(
        urls=[url.get_secret_value() for url in settings.broker_urls],
        heartbeat_seconds=broker.heartbeat_seconds,
        connect_timeout_seconds=broker.connect_timeout_seconds,
        replica=f"dlq-handler {settings.replica}",
    )
    return replace(address, on_reconnect=metrics.count_reconnect) if metrics else address


def connection_source_of(settings: Settings) -> ConnectionSource | None:
    """None: workers reconnect, so a new connection is not a new process."""
    if settings.dlq_handler.worker.reconnects:
        return None
    return ConnectionSource(
        # The timeout monitor waits for its answers.
        management_api_of(settings, timeout_seconds=5.0),
        names=settings.worker_queues,
        own_tag_prefix=CONSUMER_TAG_PREFIX,
    )


def management_api_of(settings: Settings, *, timeout_seconds: float = 10.0) -> ManagementApi:
    vhost = unquote(vhost_of(settings.broker_urls[0]))
    return ManagementApi(
        settings.management_url.get_secret_value(), vhost=vhost, timeout_seconds=timeout_seconds
    )


@asynccontextmanager
async def open_publisher(settings: Settings, address: BrokerAddress) -> AsyncIterator[Publisher]:
    """For one command: closed at the end."""
    timeout_seconds = settings.dlq_handler.broker.publish_timeout_seconds
    publisher = Publisher(address, publish_timeout_seconds=timeout_seconds)
    try:
        yield publisher
    finally:
        await publisher.close()
