"""Turn settings into the parts of the canary."""

from collections.abc import Sequence

from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.connection import BrokerAddress
from dlq_handler.broker.publish_record import PublishRecord
from dlq_handler.compose import blueprint, instance_name, names, publisher
from dlq_handler.domain.canary import CanaryPlan
from dlq_handler.domain.judge_canary import CanaryPolicy
from dlq_handler.services.canary_sender import CanarySender, SenderPolicy
from dlq_handler.services.canary_watch import CanarySeer, CanaryWatch, CanaryWatchPolicy
from dlq_handler.services.intake_watch import IntakeWatch
from dlq_handler.services.leadership import Leadership
from dlq_handler.services.observer import Observer
from dlq_handler.services.readiness import Readiness
from dlq_handler.services.topology_keeper import TopologyKeeper
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database

LONGEST_ROUND_SECONDS = 5.0


def judge_policy(settings: Settings) -> CanaryPolicy:
    canary = settings.dlq_handler.canary
    return CanaryPolicy(
        interval_seconds=canary.interval_seconds,
        limit_seconds=canary.limit_seconds,
        round_seconds=min(LONGEST_ROUND_SECONDS, canary.interval_seconds / 2),
    )


def sender(
    settings: Settings,
    database: Database,
    link: AdminLink,
    address: BrokerAddress,
    *,
    publishes: PublishRecord | None = None,
) -> CanarySender:
    exchange = blueprint(settings).dead_letter_exchange
    policy = SenderPolicy(
        plan=CanaryPlan(dead_letter_exchange=exchange, ttl_ms=settings.dlq_handler.canary.ttl_ms),
        names=names(settings),
        queue=blueprint(settings).intake_queue,
        instance=instance_name(settings),
    )
    return CanarySender(database, link, publisher(settings, address, record=publishes), policy)


def seer(settings: Settings, database: Database) -> CanarySeer:
    queue = blueprint(settings).intake_queue
    return CanarySeer(database, queue=queue, instance=instance_name(settings))


def watches(
    settings: Settings,
    database: Database,
    link: AdminLink,
    address: BrokerAddress,
    *,
    leadership: Leadership,
    keeper: TopologyKeeper,
    intake: IntakeWatch,
    publishes: PublishRecord,
    readiness: Readiness,
    observer: Observer,
) -> Sequence[CanaryWatch]:
    """None where the canary is off."""
    if not settings.dlq_handler.canary.enabled:
        return []
    watch = CanaryWatch(
        database,
        sender(settings, database, link, address, publishes=publishes),
        CanaryWatchPolicy(judge=judge_policy(settings), queue=blueprint(settings).intake_queue),
        leadership=leadership,
        view=lambda: intake.view,
        bound_workers=lambda: keeper.bound_workers,
        on_lost=keeper.reapply_now,
        readiness=readiness,
        observer=observer,
    )
    return [watch]
