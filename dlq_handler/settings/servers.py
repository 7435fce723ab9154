"""Broker, management API and view collector as the settings describe them. Nothing is connected until it is used."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import unquote

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX, vhost_of
from dlq_handler.broker.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.diagnosis.ask_replica import AskedGate
from dlq_handler.diagnosis.collector import ViewCollector
from dlq_handler.diagnosis.collector_database import CollectorOptions
from dlq_handler.host.names import COMPLETED_QUEUE, REQUESTS_QUEUE
from dlq_handler.lifecycle.orphan_watch import OrphanFinder
from dlq_handler.metrics import Metrics
from dlq_handler.settings.model import Settings
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.queue_observer import WorkerQueueObserver


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


# A person waits for the answer.
CALL_TIMEOUT_SECONDS = 5.0


def view_collector(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    gate: AskedGate,
    *,
    queues: QueueCounter | None = None,
    observer: WorkerQueueObserver | None = None,
    source: QueueConsumer[DeadLetter] | None = None,
    orphans: OrphanFinder | None = None,
) -> ViewCollector:
    """In a replica: `queues` and `observer` are those of its background checks, `source` is its intake, and `orphans`
    are counted. A command has none of them.
    """
    api = management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS)
    queues = queues or QueueCounter(link, api=api, asks_all_once=True)
    observer = observer or WorkerQueueObserver(
        link, api=api, names=settings.worker_queues, probes_ttl=False, queues=queues
    )
    return ViewCollector(
        database,
        link,
        api,
        observer,
        _options(settings),
        queues=queues,
        expectation=settings.expectation,
        gate=gate,
        source=source,
        orphans=orphans,
    )


def _options(settings: Settings) -> CollectorOptions:
    own = settings.dlq_handler
    return CollectorOptions(
        availability=settings.availability,
        brake=settings.dlq_handler.brake,
        canary=own.canary if own.canary.enabled else None,
        lease=settings.lease if own.monitor.enabled else None,
        intake_queue=settings.blueprint.intake_queue,
        completed_queue=COMPLETED_QUEUE,
        requests_queue=REQUESTS_QUEUE,
        monitor=settings.dlq_handler.monitor,
        is_shadow=own.shadow.enabled,
        attune_monitor_is_enabled=settings.executor.enable_timeout_monitor,
        acts_on_flows=own.lifecycle.enabled,
        features=settings.features,
    )
