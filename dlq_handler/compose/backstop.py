"""Turn settings into the parts of the backstop: the monitor, and those who look beside it."""

from collections.abc import Sequence
from functools import partial

from dlq_handler.broker.dead_letter_source import DeadLetterSource
from dlq_handler.broker.publish_check import PublishCheck
from dlq_handler.broker.publisher import Publisher
from dlq_handler.broker.quiet_queues import QuietQueues
from dlq_handler.compose import availability_policy, brake_policy, instance_name
from dlq_handler.domain.judge_unscheduled import UnscheduledPolicy
from dlq_handler.domain.stale_case import StalePolicy
from dlq_handler.services.brake import Brake
from dlq_handler.services.explain import ExplainPolicy
from dlq_handler.services.gate import Gate
from dlq_handler.services.judge_stale import StaleJudge, StaleJudgePolicy
from dlq_handler.services.leadership import Leadership, LeadershipPolicy
from dlq_handler.services.observer import Observer
from dlq_handler.services.outbox_relay import OutboxRelay
from dlq_handler.services.publish_watch import PublishWatch, PublishWatchPolicy
from dlq_handler.services.reconciler import ReconcilePolicy, Reconciler
from dlq_handler.services.service import Service
from dlq_handler.services.timeout_monitor import MonitorPolicy, TimeoutMonitor
from dlq_handler.services.unscheduled_watch import UnscheduledWatch, UnscheduledWatchPolicy
from dlq_handler.services.worker_sight import WorkerSight
from dlq_handler.settings import Settings
from dlq_handler.store.engine import Database

# As every Attune declares them: where its scheduler, and whoever frees slots, take their messages from.
REQUESTS_QUEUE = "attune.execution.requests.queue"
COMPLETED_QUEUE = "attune.execution.completed.queue"


def stale_policy(settings: Settings) -> StalePolicy:
    monitor = settings.dlq_handler.monitor
    return StalePolicy(
        horizon_seconds=settings.horizon_seconds,
        grace_seconds=settings.dlq_handler.grace.horizon_seconds,
        confirm_after_seconds=monitor.confirm_after_seconds,
        held_timeout_seconds=monitor.held_timeout_seconds,
        canceling_timeout_seconds=monitor.canceling_timeout_seconds,
        availability=availability_policy(settings),
    )


def stale_judge_policy(settings: Settings, lease_holder: str) -> StaleJudgePolicy:
    own = settings.dlq_handler
    return StaleJudgePolicy(
        stale=stale_policy(settings),
        instance=instance_name(settings),
        lease_holder=lease_holder,
        exchange=own.outbox.exchange,
        routing_key=own.outbox.routing_key,
        lease_seconds=own.outbox.lease_seconds,
        is_shadow=own.shadow.enabled,
        page_size=own.monitor.page_size,
    )


def monitor_policy(settings: Settings) -> MonitorPolicy:
    return MonitorPolicy(
        interval_seconds=settings.executor.timeout_check_interval,
        page_size=settings.dlq_handler.monitor.page_size,
        stale=stale_policy(settings),
    )


def leadership_policy(settings: Settings) -> LeadershipPolicy:
    # Another lease in shadow mode: a replica that only watches must not keep the others from working.
    name = "shadow leader" if settings.dlq_handler.shadow.enabled else "leader"
    return LeadershipPolicy(name=name)


def unscheduled_policy(settings: Settings) -> UnscheduledPolicy:
    monitor = settings.dlq_handler.monitor
    return UnscheduledPolicy(
        timeout_seconds=monitor.unscheduled_timeout_seconds,
        quiet_seconds=monitor.quiet_seconds,
        may_fail=monitor.fail_unscheduled,
        republish_limit=monitor.republish_limit,
    )


def unscheduled_watch_policy(settings: Settings) -> UnscheduledWatchPolicy:
    own = settings.dlq_handler
    return UnscheduledWatchPolicy(
        judge=unscheduled_policy(settings),
        instance=instance_name(settings),
        exchange=own.outbox.exchange,
        ended_key=own.outbox.routing_key,
        check_interval_seconds=settings.executor.timeout_check_interval,
        page_size=own.monitor.page_size,
        is_shadow=own.shadow.enabled,
    )


def reconcile_policy(settings: Settings) -> ReconcilePolicy:
    own = settings.dlq_handler
    return ReconcilePolicy(
        instance=instance_name(settings),
        exchange=own.outbox.exchange,
        routing_key=own.outbox.routing_key,
        interval_seconds=own.monitor.reconcile_interval_seconds,
        page_size=own.monitor.page_size,
        silent_end_seconds=own.monitor.silent_end_seconds,
        held_slot_seconds=own.monitor.held_slot_seconds,
        look_back_seconds=settings.message_queue.rabbitmq.dead_letter.ttl_ms / 1000,
        is_shadow=own.shadow.enabled,
    )


def explain_policy(settings: Settings) -> ExplainPolicy:
    own = settings.dlq_handler
    return ExplainPolicy(
        stale=stale_policy(settings),
        unscheduled=unscheduled_policy(settings),
        brake=brake_policy(settings),
        lease=leadership_policy(settings).name,
        is_monitored=own.monitor.enabled,
        is_shadow=own.shadow.enabled,
    )


def monitors(
    settings: Settings,
    store: Database,
    queues: QuietQueues,
    *,
    judge: StaleJudge,
    leadership: Leadership,
    brake: Brake,
    gate: Gate,
    sight: WorkerSight,
    relay: OutboxRelay,
    publisher: Publisher,
    source: DeadLetterSource,
    observer: Observer,
) -> Sequence[Service]:
    """The monitor, and those that look beside it for what others have lost sight of."""
    if not settings.dlq_handler.monitor.enabled:
        return []
    monitor = TimeoutMonitor(
        store,
        monitor_policy(settings),
        judge=judge,
        leadership=leadership,
        gate=gate,
        sight=sight,
        relay=relay,
        observer=observer,
        intake=source.drain if settings.message_queue.rabbitmq.dead_letter.enabled else None,
    )
    watch = UnscheduledWatch(
        store,
        unscheduled_watch_policy(settings),
        leadership=leadership,
        brake=brake,
        gate=gate,
        requests_queue=partial(queues.count_known, REQUESTS_QUEUE),
        observer=observer,
    )
    reconciler = Reconciler(
        store,
        leadership,
        reconcile_policy(settings),
        gate=gate,
        completed_queue=partial(queues.count_known, COMPLETED_QUEUE),
        observer=observer,
    )
    publish_watch = PublishWatch(
        PublishCheck(publisher.address, publisher.record),
        publisher.record,
        PublishWatchPolicy.within(settings.horizon_seconds),
    )
    return [publish_watch, monitor, watch, reconciler]
