"""The view collector, of a replica or of a command, and the diagnoser of a replica. Beside app.py and cli/."""

import ipaddress
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter, QueueCounterLimits
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.diagnosis.ask_replica import ask_for_gate, ask_own_gate
from dlq_handler.diagnosis.check_replica import Patience
from dlq_handler.diagnosis.collector import ViewCollector
from dlq_handler.diagnosis.collector_database import CollectorOptions
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.diagnosis.view import GateFact, OwnConnections, Unknown
from dlq_handler.host.names import COMPLETED_QUEUE, REQUESTS_QUEUE
from dlq_handler.loop import Backoff
from dlq_handler.safety.gate_service import Gate
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.servers import broker_of, management_api_of
from dlq_handler.workers.sight import ObservationPolicy, WorkerObservation

# A person waits for the answer.
CALL_TIMEOUT_SECONDS = 5.0


def collector_options(settings: Settings) -> CollectorOptions:
    own = settings.dlq_handler
    return CollectorOptions(
        availability=settings.availability,
        brake=settings.dlq_handler.brake,
        canary=own.canary if own.canary.enabled else None,
        lease=settings.leadership.name if own.monitor.enabled else None,
        intake_queue=settings.blueprint.intake_queue,
        completed_queue=COMPLETED_QUEUE,
        requests_queue=REQUESTS_QUEUE,
        monitor=settings.dlq_handler.monitor,
        is_shadow=own.shadow.enabled,
        attune_monitor_is_enabled=settings.executor.enable_timeout_monitor,
    )


def view_collector(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    *,
    gate: Callable[[], Awaitable[GateFact | Unknown]],
    watched_seconds: Callable[[], float],
    queues: QueueCounter | None = None,
    own_unacknowledged: Callable[[], int | None] = lambda: None,
) -> ViewCollector:
    """Inside a replica: `gate` and `watched_seconds` are its own gate's, `own_unacknowledged` its own intake's.

    `queues` are those of a replica's background checks; a command asks about each queue once.
    """
    api = management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS)
    queues = queues or QueueCounter(
        link, names=api.queue_names, policy=QueueCounterLimits(asks_all_once=True)
    )
    sight = WorkerObservation(
        link,
        api=api,
        names=settings.worker_queues,
        # Each probe leaves lines in the broker's log, and a view is collected again and again.
        policy=ObservationPolicy(probes_ttl=False),
        queues=queues,
    )
    return ViewCollector(
        database,
        link,
        api,
        sight,
        collector_options(settings),
        queues=queues,
        expectation=settings.expectation,
        gate=gate,
        watched_seconds=watched_seconds,
        own_unacknowledged=own_unacknowledged,
    )


def command_collector(settings: Settings, database: Database, link: AdminConnection) -> ViewCollector:
    """For one command, which asks the replica beside it for its gate."""
    return view_collector(
        settings,
        database,
        link,
        gate=partial(ask_for_gate, ops_url(settings)),
        # As if it had read heartbeats all the time: it can know no more of them than their age.
        watched_seconds=lambda: math.inf,
    )


@asynccontextmanager
async def open_collector(settings: Settings) -> AsyncIterator[ViewCollector]:
    """Connects to the broker only when it is asked."""
    async with (
        open_database(settings) as database,
        AdminConnection(broker_of(settings), call_timeout_seconds=CALL_TIMEOUT_SECONDS) as link,
    ):
        yield command_collector(settings, database, link)


def diagnoser_of(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    *,
    leadership: Leadership,
    gate: Gate,
    queues: QueueCounter,
    source: QueueConsumer[DeadLetter],
    publisher: Publisher,
) -> Diagnoser:
    collector = view_collector(
        settings,
        database,
        link,
        gate=partial(ask_own_gate, gate),
        watched_seconds=lambda: gate.watched_seconds,
        queues=queues,
        own_unacknowledged=lambda: source.unacknowledged,
    )
    interval_seconds = settings.dlq_handler.ui.refresh_seconds
    return Diagnoser(
        database,
        collector,
        leadership=leadership,
        replica=settings.replica,
        patience=_patience(settings, interval_seconds),
        own_connections=lambda: OwnConnections(
            is_consuming=source.is_consuming, is_blocked=publisher.is_blocked
        ),
        interval_seconds=interval_seconds,
    )


def _patience(settings: Settings, interval_seconds: float) -> Patience:
    # A service that met an unavailable server may sleep for as long as that, and is observed one interval later.
    back_within_seconds = Backoff().most_seconds + interval_seconds
    return Patience(
        opens_within_seconds=back_within_seconds,
        leads_within_seconds=max(back_within_seconds, settings.leadership.taken_within_seconds),
    )


def ops_url(settings: Settings) -> str:
    """Where a replica with these settings listens. One that listens everywhere is asked on this machine."""
    http = settings.dlq_handler.http
    host = http.host
    try:
        if ipaddress.ip_address(host).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
    except ValueError:
        pass
    return f"http://{f'[{host}]' if ':' in host else host}:{http.port}"
