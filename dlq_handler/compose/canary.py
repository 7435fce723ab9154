"""Turn settings into the parts of the canary."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.compose import open_publisher
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.health import Readiness
from dlq_handler.metrics import Metrics
from dlq_handler.settings import Settings
from dlq_handler.settings.servers import broker_of, management_api_of, open_database
from dlq_handler.topology.canary import CanaryPlan
from dlq_handler.topology.canary_runner import CanaryRun
from dlq_handler.topology.canary_sender import CanarySender, SenderPolicy
from dlq_handler.topology.canary_watch import CanaryWatch, CanaryWatchPolicy
from dlq_handler.topology.decide_canary import CanaryPolicy
from dlq_handler.topology.intake_watch import IntakeWatch
from dlq_handler.topology.keeper import TopologyKeeper

LONGEST_ROUND_SECONDS = 5.0
CALL_TIMEOUT_SECONDS = 5.0


def decision_policy(settings: Settings) -> CanaryPolicy:
    canary = settings.dlq_handler.canary
    return CanaryPolicy(
        interval_seconds=canary.interval_seconds,
        limit_seconds=canary.limit_seconds,
        round_seconds=min(LONGEST_ROUND_SECONDS, canary.interval_seconds / 2),
    )


def sender(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    publisher: Publisher,
) -> CanarySender:
    exchange = settings.blueprint.dead_letter_exchange
    policy = SenderPolicy(
        plan=CanaryPlan(dead_letter_exchange=exchange, ttl_ms=settings.dlq_handler.canary.ttl_ms),
        names=settings.worker_queues,
        queue=settings.blueprint.intake_queue,
        replica=settings.replica,
    )
    return CanarySender(database, link, publisher, policy)


@asynccontextmanager
async def open_run(
    settings: Settings, *, limit_seconds: float, say: Callable[[str], None]
) -> AsyncIterator[CanaryRun]:
    address = broker_of(settings)
    async with (
        open_database(settings) as database,
        AdminConnection(address, call_timeout_seconds=CALL_TIMEOUT_SECONDS) as link,
        open_publisher(settings, address) as publisher,
    ):
        yield CanaryRun(
            database,
            link,
            management_api_of(settings, timeout_seconds=CALL_TIMEOUT_SECONDS),
            sender(settings, database, link, publisher),
            queue=settings.blueprint.intake_queue,
            own_prefix=CONSUMER_TAG_PREFIX,
            limit_seconds=limit_seconds,
            say=say,
        )


def watches(
    settings: Settings,
    database: Database,
    link: AdminConnection,
    publisher: Publisher,
    *,
    leadership: Leadership,
    keeper: TopologyKeeper,
    intake: IntakeWatch,
    readiness: Readiness,
    metrics: Metrics,
) -> Sequence[CanaryWatch]:
    """None where the canary is off."""
    if not settings.dlq_handler.canary.enabled:
        return []
    watch = CanaryWatch(
        database,
        sender(settings, database, link, publisher),
        CanaryWatchPolicy(decide=decision_policy(settings), queue=settings.blueprint.intake_queue),
        leadership=leadership,
        view=lambda: intake.view,
        bound_workers=lambda: keeper.bound_workers,
        on_lost=keeper.reapply_now,
        readiness=readiness,
        metrics=metrics,
    )
    return [watch]
