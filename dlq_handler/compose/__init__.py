"""Turn settings into parts: the one place that knows which setting goes into which policy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.recorder import LetterRecorder, RecordOptions
from dlq_handler.explain.explain import ExplainPolicy
from dlq_handler.health import Readiness
from dlq_handler.history.retention import RetentionPolicy
from dlq_handler.metrics import Metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings import Settings
from dlq_handler.settings.servers import management_api_of
from dlq_handler.topology.finding import Expectation
from dlq_handler.workers.refusal_budget import RefusalPolicy
from dlq_handler.workers.sight import ObservationPolicy, WorkerObservation


def expectation(settings: Settings, worker_ids: frozenset[int] | None) -> Expectation:
    """What a check of the broker compares it with; `worker_ids` is None while the database does not tell."""
    return Expectation(
        blueprint=settings.blueprint,
        worker_ids=worker_ids,
        ttl_ms=settings.message_queue.rabbitmq.worker_queue_ttl_ms,
        own_consumer_tag_prefix=CONSUMER_TAG_PREFIX,
    )


def worker_sight(
    settings: Settings, admin: AdminConnection, *, probes_ttl: bool = True, queues: QueueCounter | None = None
) -> WorkerObservation:
    refusals = RefusalPolicy(confirm_after_seconds=settings.dlq_handler.monitor.confirm_after_seconds)
    return WorkerObservation(
        admin,
        api=management_api_of(settings),
        names=settings.worker_queues,
        policy=ObservationPolicy(probes_ttl=probes_ttl, refusals=refusals),
        queues=queues,
    )


@asynccontextmanager
async def open_publisher(settings: Settings, address: BrokerAddress) -> AsyncIterator[Publisher]:
    """For one command: a publisher, closed at the end."""
    publisher = Publisher(
        address, publish_timeout_seconds=settings.dlq_handler.broker.publish_timeout_seconds
    )
    try:
        yield publisher
    finally:
        await publisher.close()


def record_options(settings: Settings) -> RecordOptions:
    return RecordOptions(replica=settings.replica, names=settings.worker_queues, is_shadow=settings.is_shadow)


def letter_recorder(settings: Settings, gate: Gate, metrics: Metrics) -> LetterRecorder:
    return LetterRecorder(
        record_options(settings),
        metrics,
        gate=gate,
        availability=settings.availability,
        destination=settings.dlq_handler.outbox.destination,
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
        settings.dlq_handler.brake,
        batch_size=settings.dlq_handler.batch.size,
        replica=settings.replica,
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
        settings.dlq_handler.gate,
        unavailable_after_seconds=settings.worker_unavailable_after_seconds,
        readiness=readiness or Readiness(),
        metrics=metrics,
    )


def retention_policy(settings: Settings) -> RetentionPolicy:
    own = settings.dlq_handler
    return RetentionPolicy(
        resolved_seconds=settings.message_queue.rabbitmq.dead_letter.ttl_ms / 1000,
        unresolved_seconds=own.retention.unresolved_days * 86_400,
        interval_seconds=own.retention.interval_seconds,
        history_seconds=own.retention.history_days * 86_400,
    )


def explain_policy(settings: Settings) -> ExplainPolicy:
    return ExplainPolicy(
        limits=settings.stale_limits,
        brake=settings.dlq_handler.brake,
        names=settings.worker_queues,
        lease=settings.leadership.name,
        is_monitored=settings.dlq_handler.monitor.enabled,
        is_shadow=settings.is_shadow,
    )
