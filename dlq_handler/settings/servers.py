"""Database, broker and management API as the settings describe them. Nothing is connected until it is used."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import unquote

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX, vhost_of
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.database.link import silence_within
from dlq_handler.metrics import Metrics
from dlq_handler.settings.model import Settings
from dlq_handler.workers.connection_source import ConnectionSource


def database_of(settings: Settings) -> Database:
    use = settings.dlq_handler.database
    return Database(
        settings.database.url.get_secret_value(),
        host_schema=settings.database.schema_name,
        own_schema=settings.dlq_handler.schema_name,
        pool_size=use.pool_size,
        connect_timeout_seconds=use.connect_timeout_seconds,
        statement_timeout_ms=use.statement_timeout_ms,
        lock_timeout_ms=use.lock_timeout_ms,
        application_name=f"dlq-handler {settings.replica}",
        silence_seconds=silence_within(settings.worker_unavailable_after_seconds),
    )


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """For one command: closed at the end."""
    database = database_of(settings)
    try:
        yield database
    finally:
        await database.dispose()


def ui_database_of(settings: Settings) -> Database:
    """For dashboard and API: a small pool with short statements, used on the listeners' event loop only."""
    use, ui = settings.dlq_handler.database, settings.dlq_handler.ui
    return Database(
        settings.database.url.get_secret_value(),
        host_schema=settings.database.schema_name,
        own_schema=settings.dlq_handler.schema_name,
        pool_size=ui.pool_size,
        connect_timeout_seconds=use.connect_timeout_seconds,
        statement_timeout_ms=min(ui.statement_timeout_ms, use.statement_timeout_ms),
        lock_timeout_ms=use.lock_timeout_ms,
        application_name=f"dlq-handler {settings.replica} ui",
    )


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
