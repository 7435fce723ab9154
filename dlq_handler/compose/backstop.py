"""Turn settings into the parts of the backstop: the monitor, and those who look beside it."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import unquote

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.consume.consumer import QueueConsumer
from dlq_handler.broker.options import CONSUMER_TAG_PREFIX, vhost_of
from dlq_handler.broker.publish.publish_checker import PublishChecker
from dlq_handler.broker.publish.publisher import Publisher
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership, LeadershipPolicy
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.explain.explain import ExplainPolicy
from dlq_handler.host.names import COMPLETED_QUEUE, REQUESTS_QUEUE
from dlq_handler.metrics import Metrics
from dlq_handler.running import Service
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.safety.publish_watch import PublishWatch
from dlq_handler.settings import Settings
from dlq_handler.settings.servers import management_api_of
from dlq_handler.timeouts.case import StalePolicy
from dlq_handler.timeouts.commit import StaleDecider, StaleDecisionPolicy
from dlq_handler.timeouts.completion_watch import CompletionWatch, CompletionWatchPolicy
from dlq_handler.timeouts.decide_unscheduled import UnscheduledPolicy
from dlq_handler.timeouts.end_publisher import EndPublisher, EndPublisherPolicy
from dlq_handler.timeouts.monitor import MonitorPolicy, TimeoutMonitor
from dlq_handler.timeouts.reconciler import ReconcilePolicy, Reconciler
from dlq_handler.timeouts.unscheduled import UnscheduledWatch, UnscheduledWatchPolicy
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.processes import WorkerProcesses
from dlq_handler.workers.sight import WorkerObservation


def stale_policy(settings: Settings) -> StalePolicy:
    monitor = settings.dlq_handler.monitor
    return StalePolicy(
        horizon_seconds=settings.deadline_seconds,
        grace_seconds=settings.dlq_handler.grace.after_ttl_seconds,
        confirm_after_seconds=monitor.confirm_after_seconds,
        held_timeout_seconds=monitor.held_timeout_seconds,
        canceling_timeout_seconds=monitor.canceling_timeout_seconds,
        availability=settings.availability,
        run_limit_seconds=settings.dlq_handler.worker.run_limit_seconds,
    )


def connection_source(settings: Settings) -> ConnectionSource | None:
    """None: workers connect again, so that a new connection is no new process."""
    if settings.dlq_handler.worker.reconnects:
        return None
    return ConnectionSource(
        ManagementApi(
            settings.management_url.get_secret_value(),
            vhost=unquote(vhost_of(settings.broker_urls[0])),
            # The monitor waits for it.
            timeout_seconds=5.0,
        ),
        names=settings.worker_queues,
        own_tag_prefix=CONSUMER_TAG_PREFIX,
    )


def stale_decide_policy(settings: Settings) -> StaleDecisionPolicy:
    own = settings.dlq_handler
    return StaleDecisionPolicy(
        stale=stale_policy(settings),
        replica=settings.replica,
        destination=own.outbox.destination,
        is_shadow=own.shadow.enabled,
        page_size=own.monitor.batch_size,
    )


def monitor_policy(settings: Settings) -> MonitorPolicy:
    return MonitorPolicy(
        interval_seconds=settings.dlq_handler.monitor.interval_seconds,
        page_size=settings.dlq_handler.monitor.batch_size,
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
        republishes=monitor.republish_requests,
    )


def unscheduled_watch_policy(settings: Settings) -> UnscheduledWatchPolicy:
    own = settings.dlq_handler
    return UnscheduledWatchPolicy(
        decide=unscheduled_policy(settings),
        replica=settings.replica,
        destination=own.outbox.destination,
        check_interval_seconds=own.monitor.interval_seconds,
        page_size=own.monitor.batch_size,
        is_shadow=own.shadow.enabled,
    )


def reconcile_policy(settings: Settings) -> ReconcilePolicy:
    own = settings.dlq_handler
    return ReconcilePolicy(
        replica=settings.replica,
        destination=own.outbox.destination,
        interval_seconds=own.monitor.reconcile_interval_seconds,
        page_size=own.monitor.batch_size,
        silent_end_seconds=own.monitor.missing_event_seconds,
        held_slot_seconds=own.monitor.held_slot_seconds,
        look_back_seconds=settings.message_queue.rabbitmq.dead_letter.ttl_ms / 1000,
        is_shadow=own.shadow.enabled,
    )


def completion_watch_policy(settings: Settings) -> CompletionWatchPolicy:
    own = settings.dlq_handler
    return CompletionWatchPolicy(
        quiet_seconds=own.monitor.quiet_seconds,
        held_slot_seconds=own.monitor.held_slot_seconds,
        slot_interval_seconds=own.monitor.reconcile_interval_seconds,
        page_size=own.monitor.batch_size,
        is_shadow=own.shadow.enabled,
    )


def end_publisher_policy(settings: Settings) -> EndPublisherPolicy:
    own = settings.dlq_handler
    return EndPublisherPolicy(
        replica=settings.replica,
        destination=own.outbox.destination,
        is_shadow=own.shadow.enabled,
    )


def explain_policy(settings: Settings) -> ExplainPolicy:
    own = settings.dlq_handler
    return ExplainPolicy(
        stale=stale_policy(settings),
        unscheduled=unscheduled_policy(settings),
        brake=settings.dlq_handler.brake,
        names=settings.worker_queues,
        lease=leadership_policy(settings).name,
        is_monitored=own.monitor.enabled,
        is_shadow=own.shadow.enabled,
    )


def monitors(
    settings: Settings,
    store: Database,
    admin: AdminConnection,
    queues: QueueCounter,
    *,
    decide: StaleDecider,
    leadership: Leadership,
    brake: Brake,
    gate: Gate,
    sight: WorkerObservation,
    publisher: Publisher,
    source: QueueConsumer[DeadLetter],
    metrics: Metrics,
) -> Sequence[Service]:
    """The monitor, and those that look beside it for what others have lost sight of."""
    if not settings.dlq_handler.monitor.enabled:
        return []
    connections = connection_source(settings)
    monitor = TimeoutMonitor(
        store,
        monitor_policy(settings),
        decide=decide,
        leadership=leadership,
        gate=gate,
        sight=sight,
        metrics=metrics,
        publishes=publisher.recorder.view,
        intake=source.drain if settings.message_queue.rabbitmq.dead_letter.enabled else None,
        processes=None
        if connections is None
        else WorkerProcesses(store, connections, leadership, is_shadow=settings.dlq_handler.shadow.enabled),
    )
    watch = UnscheduledWatch(
        store,
        unscheduled_watch_policy(settings),
        leadership=leadership,
        brake=brake,
        gate=gate,
        requests_queue=partial(queues.count_known, REQUESTS_QUEUE),
        metrics=metrics,
    )
    reconciler = Reconciler(
        store,
        leadership,
        reconcile_policy(settings),
        gate=gate,
        completed_queue=partial(queues.count_known, COMPLETED_QUEUE),
        metrics=metrics,
    )
    completion_watch = CompletionWatch(
        store,
        leadership,
        completion_watch_policy(settings),
        gate=gate,
        ends=EndPublisher(store, leadership, end_publisher_policy(settings), metrics=metrics),
        completed_queue=partial(queues.count_known, COMPLETED_QUEUE),
        unacked=partial(management_api_of(settings, timeout_seconds=5.0).unacknowledged, COMPLETED_QUEUE),
    )
    publish_watch = PublishWatch(
        PublishChecker(admin, publisher),
        publisher.recorder,
        deadline_seconds=settings.deadline_seconds,
    )
    return [publish_watch, monitor, watch, reconciler, completion_watch]
