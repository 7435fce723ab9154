"""What `status` and `doctor` open: the view collector of a command, and the doctor beside it."""

import ipaddress
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.rights_probe import NeededRights
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX
from dlq_handler.broker.publish.publish_checker import PUBLISH_CHECK_PREFIX
from dlq_handler.database.engine import Database
from dlq_handler.diagnosis.ask_replica import RemoteGate
from dlq_handler.diagnosis.collector import ViewCollector
from dlq_handler.diagnosis.doctor import Doctor
from dlq_handler.settings import Settings
from dlq_handler.settings.collector import CALL_TIMEOUT_SECONDS, view_collector
from dlq_handler.settings.databases import open_database
from dlq_handler.settings.servers import broker_of, connection_source_of, management_api_of, open_publisher
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE
from dlq_handler.topology.canary_runner import CanaryRun
from dlq_handler.topology.canary_sender import CanarySender

LONGEST_LIMIT_SECONDS = 10.0


@asynccontextmanager
async def open_collector(settings: Settings) -> AsyncIterator[ViewCollector]:
    """Connects to the broker only when it is asked."""
    async with (
        open_database(settings) as database,
        AdminConnection(broker_of(settings), call_timeout_seconds=CALL_TIMEOUT_SECONDS) as link,
    ):
        yield _collector(settings, database, link)


def _collector(settings: Settings, database: Database, link: AdminConnection) -> ViewCollector:
    return view_collector(settings, database, link, RemoteGate(ops_url(settings)))


@asynccontextmanager
async def open_doctor(
    settings: Settings, *, warnings: Sequence[str], with_canary: bool, say: Callable[[str], None]
) -> AsyncIterator[tuple[ViewCollector, Doctor]]:
    """`say`: progress for people who wait."""
    address, canary = broker_of(settings), settings.dlq_handler.canary
    api = management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS)
    async with (
        open_database(settings) as database,
        AdminConnection(address, call_timeout_seconds=CALL_TIMEOUT_SECONDS) as link,
        open_publisher(settings, address) as publisher,
    ):
        run = CanaryRun(
            database,
            link,
            api,
            CanarySender(
                database,
                link,
                publisher,
                settings.blueprint,
                ttl_ms=canary.ttl_ms,
                replica=settings.replica,
            ),
            queue=settings.blueprint.intake_queue,
            own_prefix=CONSUMER_TAG_PREFIX,
            limit_seconds=min(canary.limit_seconds, LONGEST_LIMIT_SECONDS),
            say=say,
        )
        may_run = with_canary and canary.enabled and settings.blueprint.has_intake
        doctor = Doctor(
            database,
            link,
            api,
            needed=needed_rights(settings),
            connections=connection_source_of(settings),
            run_limit_seconds=settings.dlq_handler.worker.run_limit_seconds,
            warnings=warnings,
            canary=run if may_run else None,
        )
        yield _collector(settings, database, link), doctor


def needed_rights(settings: Settings) -> NeededRights:
    """Name by name what `broker_permissions` prints as patterns."""
    plan, has_canary = settings.blueprint, settings.dlq_handler.canary.enabled
    a_worker_queue = settings.worker_queues.queue(1)
    rescued = (a_worker_queue,) if settings.dlq_handler.worker.drain_queues else ()
    dead_letter_exchange = plan.dead_letter_exchange
    checked = (f"{PUBLISH_CHECK_PREFIX}0",) if settings.dlq_handler.monitor.enabled else ()
    return NeededRights(
        configured_exchanges=(
            *(exchange.name for exchange in plan.exchanges),
            *((CANARY_EXCHANGE,) if has_canary else ()),
            *checked,
        ),
        configured_queues=(*plan.queues, a_worker_queue, *((CANARY_QUEUE,) if has_canary else ()), *checked),
        written_exchanges=(
            plan.executions_exchange,
            *((CANARY_EXCHANGE, dead_letter_exchange) if has_canary else ()),
            *checked,
        ),
        consumed_queues=(plan.intake_queue, *rescued, *((CANARY_QUEUE,) if has_canary else ())),
        bound=(
            *((queue, dead_letter_exchange) for queue in plan.queues),
            *(((CANARY_QUEUE, CANARY_EXCHANGE),) if has_canary else ()),
            *((name, name) for name in checked),
        ),
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
