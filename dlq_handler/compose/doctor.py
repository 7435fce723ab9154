"""Turn settings into the doctor."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.rights_probe import NeededRights
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX
from dlq_handler.broker.publish.publish_checker import PUBLISH_CHECK_PREFIX
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.compose import canary as compose_canary
from dlq_handler.compose import expectation, open_publisher
from dlq_handler.compose.backstop import connection_source
from dlq_handler.database.engine import Database
from dlq_handler.diagnosis.doctor import Doctor
from dlq_handler.diagnosis.doctor_broker import BrokerExaminer, HostQueue
from dlq_handler.diagnosis.doctor_broker_lines import COMPLETIONS, REQUESTS
from dlq_handler.diagnosis.doctor_canary import CanaryExaminer
from dlq_handler.host.names import COMPLETED_QUEUE, REQUESTS_QUEUE
from dlq_handler.settings import Settings
from dlq_handler.settings.servers import broker_of, management_api_of, open_database
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE
from dlq_handler.topology.decide_canary import CanaryPolicy

# Somebody waits for the answer.
CALL_TIMEOUT_SECONDS = 5.0
LONGEST_LIMIT_SECONDS = 10.0

_HOST_QUEUES = (
    HostQueue(looked=COMPLETIONS, name=COMPLETED_QUEUE),
    HostQueue(looked=REQUESTS, name=REQUESTS_QUEUE),
)


@asynccontextmanager
async def open_doctor(
    settings: Settings, *, warnings: Sequence[str], with_canary: bool, say: Callable[[str], None]
) -> AsyncIterator[Doctor]:
    """`say`: for people who wait."""
    address, has_intake = broker_of(settings), settings.blueprint.has_intake
    async with (
        open_database(settings) as database,
        AdminConnection(address, call_timeout_seconds=CALL_TIMEOUT_SECONDS) as link,
        open_publisher(settings, address) as publisher,
    ):
        yield Doctor(
            database,
            BrokerExaminer(
                link,
                management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS),
                needed=needed_rights(settings),
                host_queues=_HOST_QUEUES,
                has_canaries=settings.dlq_handler.canary.enabled,
                connections=connection_source(settings),
                run_limit_seconds=settings.dlq_handler.worker.run_limit_seconds,
            ),
            _canary(settings, database, link, publisher, say) if with_canary and has_intake else None,
            warnings=warnings,
            expectation=lambda worker_ids: expectation(settings, worker_ids),
        )


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


def _canary(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    publisher: Publisher,
    say: Callable[[str], None],
) -> CanaryExaminer:
    queue, canary = settings.blueprint.intake_queue, settings.dlq_handler.canary
    return CanaryExaminer(
        database,
        link,
        compose_canary.sender(settings, database, link, publisher),
        CanaryPolicy(
            interval_seconds=canary.interval_seconds,
            limit_seconds=min(canary.limit_seconds, LONGEST_LIMIT_SECONDS),
        ),
        queue=queue,
        own_prefix=CONSUMER_TAG_PREFIX,
        is_enabled=canary.enabled,
        say=say,
    )
