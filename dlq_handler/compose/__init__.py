"""Turn settings into parts: the one place that knows which setting goes into which policy."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import unquote
from uuid import uuid4

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.broker.options import vhost_of
from dlq_handler.broker.publish.publish_recorder import PublishRecorder
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.database.link import silence_within
from dlq_handler.dead_letters.commit import DecisionPolicy
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.parse import read_dead_letter
from dlq_handler.endings.relay import RelayPolicy
from dlq_handler.history.retention import RetentionPolicy
from dlq_handler.host.worker import AvailabilityPolicy, WorkerQueueNames
from dlq_handler.host.workers_sql import worker_ids
from dlq_handler.metrics import Metrics
from dlq_handler.readiness import Readiness
from dlq_handler.safety.brake import BrakePolicy
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate import GatePolicy
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings import Settings
from dlq_handler.topology.blueprint import Blueprint, ShadowLimits
from dlq_handler.topology.finding import Expectation
from dlq_handler.topology.keeper import KeeperPolicy, TopologyKeeper
from dlq_handler.workers.refusal_budget import RefusalPolicy
from dlq_handler.workers.sight import ObservationPolicy, WorkerObservation
from dlq_handler.workers.watch import WatchPolicy

CONSUMER_TAG_PREFIX = "dlq-handler."
# A letter's own key is a hash and never begins like this: it is decided as if no copy of it had ever been.
SHADOW_KEY_PREFIX = "shadow:"


def instance_name(settings: Settings) -> str:
    return settings.dlq_handler.instance_name or f"{socket.gethostname()}-{os.getpid()}"


def lease_holder(settings: Settings) -> str:
    """Never the same for two processes, even if the same instance name was given to both."""
    return f"{instance_name(settings)} {uuid4()}"


def names(settings: Settings) -> WorkerQueueNames:
    worker = settings.dlq_handler.worker
    return WorkerQueueNames(
        queue_pattern=worker.queue_pattern, routing_key_pattern=worker.routing_key_pattern
    )


def database(settings: Settings) -> Database:
    use = settings.dlq_handler.database
    return Database(
        settings.database.url.get_secret_value(),
        host_schema=settings.database.schema_name,
        own_schema=settings.dlq_handler.schema_name,
        pool_size=use.pool_size,
        connect_timeout_seconds=use.connect_timeout_seconds,
        statement_timeout_ms=use.statement_timeout_ms,
        lock_timeout_ms=use.lock_timeout_ms,
        application_name=f"dlq-handler {instance_name(settings)}",
        silence_seconds=silence_within(settings.worker_unavailable_after_seconds),
    )


def ui_database(settings: Settings) -> Database:
    """For dashboard and API: a small pool with short statements, used on the listeners' loop only."""
    use, ui = settings.dlq_handler.database, settings.dlq_handler.ui
    return Database(
        settings.database.url.get_secret_value(),
        host_schema=settings.database.schema_name,
        own_schema=settings.dlq_handler.schema_name,
        pool_size=ui.pool_size,
        connect_timeout_seconds=use.connect_timeout_seconds,
        statement_timeout_ms=min(ui.statement_timeout_ms, use.statement_timeout_ms),
        lock_timeout_ms=use.lock_timeout_ms,
        application_name=f"dlq-handler {instance_name(settings)} ui",
    )


def broker_address(settings: Settings, *, metrics: Metrics | None = None) -> BrokerAddress:
    """`metrics` counts the reconnects of a replica; one command passes none."""
    broker = settings.dlq_handler.broker
    address = BrokerAddress(
        urls=[url.get_secret_value() for url in settings.broker_urls],
        heartbeat_seconds=broker.heartbeat_seconds,
        connect_timeout_seconds=broker.connect_timeout_seconds,
        instance=f"dlq-handler {instance_name(settings)}",
    )
    return replace(address, on_reconnect=metrics.count_reconnect) if metrics else address


def blueprint(settings: Settings) -> Blueprint:
    dead_letter, shadow = settings.message_queue.rabbitmq.dead_letter, settings.dlq_handler.shadow
    return Blueprint(
        dead_letter_exchange=dead_letter.exchange,
        intake_queue=shadow.queue if shadow.enabled else settings.dlq_handler.intake.queue,
        has_intake=dead_letter.enabled,
        shadow=ShadowLimits(max_letters=shadow.max_dead_letters, ttl_ms=shadow.ttl_ms)
        if shadow.enabled
        else None,
        executions_exchange=settings.dlq_handler.outbox.exchange,
        workers=names(settings),
    )


def expectation(settings: Settings, worker_ids: frozenset[int] | None) -> Expectation:
    """What a check of the broker compares it with; `worker_ids` is None while the database does not tell."""
    return Expectation(
        blueprint=blueprint(settings),
        worker_ids=worker_ids,
        ttl_ms=settings.message_queue.rabbitmq.worker_queue_ttl_ms,
        own_consumer_tag_prefix=CONSUMER_TAG_PREFIX,
    )


def source(settings: Settings, address: BrokerAddress) -> QueueConsumer[DeadLetter]:
    priority = settings.dlq_handler.intake.consumer_priority
    return _source(settings, address, queue=blueprint(settings).intake_queue, priority=priority)


def rescue_source(settings: Settings, address: BrokerAddress, worker_id: int) -> QueueConsumer[DeadLetter]:
    # The last in line: a worker that comes back while we consume gets what is left.
    return _source(settings, address, queue=names(settings).queue(worker_id), priority=-10)


def _source(
    settings: Settings, address: BrokerAddress, *, queue: str, priority: int
) -> QueueConsumer[DeadLetter]:
    own = settings.dlq_handler
    return QueueConsumer(
        address,
        queue=queue,
        prefetch=settings.prefetch,
        batch_size=own.batch.size,
        batch_wait_seconds=own.batch.wait_ms / 1000,
        max_bytes=own.intake.buffer_bytes,
        read=partial(
            read_dead_letter,
            body_limit_bytes=own.intake.stored_body_bytes,
            key_prefix=SHADOW_KEY_PREFIX if own.shadow.enabled else "",
        ),
        max_body_bytes=own.intake.max_body_bytes,
        consumer_priority=priority,
        # Never the same for two processes: the watch looks for its own by this.
        consumer_tag=f"{CONSUMER_TAG_PREFIX}{instance_name(settings)}.{uuid4().hex[:8]}",
    )


def management_api(settings: Settings, *, timeout_seconds: float = 10.0) -> ManagementApi:
    vhost = unquote(vhost_of(settings.broker_urls[0]))
    return ManagementApi(
        settings.management_url.get_secret_value(), vhost=vhost, timeout_seconds=timeout_seconds
    )


def quiet_queues(settings: Settings, link: AdminConnection) -> QueueCounter:
    """For the background checks of a replica, which ask again and again."""
    return QueueCounter(link, names=management_api(settings, timeout_seconds=5.0).queue_names)


def worker_sight(
    settings: Settings, address: BrokerAddress, *, probes_ttl: bool = True, queues: QueueCounter | None = None
) -> WorkerObservation:
    refusals = RefusalPolicy(confirm_after_seconds=settings.dlq_handler.monitor.confirm_after_seconds)
    return WorkerObservation(
        AdminConnection(address),
        statistics=management_api(settings).queue_statistics,
        names=names(settings),
        policy=ObservationPolicy(probes_ttl=probes_ttl, refusals=refusals),
        queues=queues,
    )


def publisher(
    settings: Settings, address: BrokerAddress, *, record: PublishRecorder | None = None
) -> Publisher:
    timeout_seconds = settings.dlq_handler.broker.publish_timeout_seconds
    return Publisher(address, publish_timeout_seconds=timeout_seconds, recorder=record)


def topology_keeper(settings: Settings, address: BrokerAddress, store: Database) -> TopologyKeeper:
    own = settings.dlq_handler
    return TopologyKeeper(
        link=AdminConnection(address),
        blueprint=blueprint(settings),
        worker_ids=lambda: worker_ids(store),
        policy=KeeperPolicy(
            watch_interval_seconds=own.worker.watch_interval_seconds,
            reapply_interval_seconds=own.topology.reapply_interval_seconds,
        ),
    )


def availability_policy(settings: Settings) -> AvailabilityPolicy:
    return AvailabilityPolicy(
        unavailable_after_seconds=settings.worker_unavailable_after_seconds,
        late_after_seconds=3.0 * settings.worker.heartbeat_interval,
    )


def watch_policy(settings: Settings) -> WatchPolicy:
    return WatchPolicy(
        availability=availability_policy(settings),
        confirm_after_seconds=settings.dlq_handler.monitor.confirm_after_seconds,
    )


def decision_policy(settings: Settings, lease_holder: str) -> DecisionPolicy:
    own = settings.dlq_handler
    return DecisionPolicy(
        instance=instance_name(settings),
        lease_holder=lease_holder,
        exchange=own.outbox.exchange,
        routing_key=own.outbox.routing_key,
        lease_seconds=own.outbox.lease_seconds,
        availability=availability_policy(settings),
        names=names(settings),
        is_shadow=own.shadow.enabled,
        batch_size=own.batch.size,
    )


def brake_policy(settings: Settings) -> BrakePolicy:
    own = settings.dlq_handler
    return BrakePolicy(
        max_decisions_per_minute=own.brake.max_decisions_per_minute,
        hold_seconds=own.brake.hold_seconds,
        batch_size=own.batch.size,
    )


def brake(
    settings: Settings,
    store: Database,
    *,
    metrics: Metrics,
    readiness: Readiness | None = None,
) -> Brake:
    """One command needs no readiness: it answers no probe."""
    return Brake(
        store,
        brake_policy(settings),
        instance=instance_name(settings),
        readiness=readiness or Readiness(),
        metrics=metrics,
    )


def gate(
    settings: Settings,
    store: Database,
    *,
    metrics: Metrics,
    readiness: Readiness | None = None,
) -> Gate:
    return Gate(
        store,
        GatePolicy(
            unknown_percent=settings.dlq_handler.gate.unknown_percent,
            unavailable_after_seconds=settings.worker_unavailable_after_seconds,
        ),
        readiness=readiness or Readiness(),
        metrics=metrics,
    )


def relay_policy(settings: Settings) -> RelayPolicy:
    own = settings.dlq_handler
    return RelayPolicy(
        batch_size=own.outbox.batch_size,
        lease_seconds=own.outbox.lease_seconds,
        publish_timeout_seconds=own.broker.publish_timeout_seconds,
        poll_interval_seconds=own.outbox.poll_interval_seconds,
        max_backoff_seconds=own.outbox.max_backoff_seconds,
    )


def retention_policy(settings: Settings) -> RetentionPolicy:
    own = settings.dlq_handler
    return RetentionPolicy(
        resolved_seconds=settings.message_queue.rabbitmq.dead_letter.ttl_ms / 1000,
        unresolved_seconds=own.retention.unresolved_days * 86_400,
        interval_seconds=own.retention.interval_seconds,
        history_seconds=own.retention.history_days * 86_400,
    )


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """For one command: the database, closed at the end."""
    opened = database(settings)
    try:
        yield opened
    finally:
        await opened.dispose()
