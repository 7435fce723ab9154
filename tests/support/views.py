"""Views for tests: one in which all is well, and workers to put into it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from dlq_handler.diagnosis.collector import ViewCollector
from dlq_handler.diagnosis.view import (
    AttuneMonitorFact,
    BrakeFact,
    BrokerFact,
    DatabaseFact,
    GateFact,
    LeaderFact,
    LettersFact,
    ObservedWorker,
    OrphansFact,
    OutboxFact,
    QueueFact,
    RightsFact,
    TablesFact,
    TopologyFact,
    Unknown,
    View,
)
from dlq_handler.host.worker import AvailabilityPolicy, QueueObservation, RegisteredWorker, Worker, is_on_time
from dlq_handler.lifecycle.flow import FlowStatus
from dlq_handler.lifecycle.flow_summary import FlowsFact
from dlq_handler.safety.brake import BrakeState, BrakeView
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.topology.canary import CanaryState, WorkerCanary
from dlq_handler.topology.check import check
from dlq_handler.topology.consumers import Consumers
from dlq_handler.topology.system_queues import SystemQueues
from dlq_handler.workers.availability import standing_of
from dlq_handler.workers.service_observation import ServiceObservation, ServiceObservations
from tests.support.topologies import a_stock_world, bound, dispatch_key, expectation

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
TTL_SECONDS = 300.0
INTAKE = "attune.dlx.queue"

POLICY = AvailabilityPolicy(unavailable_after_seconds=300.0)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_worker(
    *,
    name: str = "worker-python",
    number: int = 7,
    silent_seconds: float = 5.0,
    watched_seconds: float = float("inf"),
    queue: QueueObservation | Unknown | None = QueueObservation(consumers=1, ready=0, unacked=0),  # noqa: B008  frozen
    ended_last_hour: int | None = 0,
    expired_lately: int = 0,
    observation: ServiceObservation | None = None,
    **row: Any,
) -> ObservedWorker:
    """Available, idle and consuming, by default."""
    worker = Worker(id=number, heartbeat_age_seconds=silent_seconds, last_heartbeat=ago(silent_seconds))
    states: dict[str, Any] = {
        "status": "active",
        "role": "action",
        "is_cordoned": False,
        "cordon_reason": None,
    }
    loads: dict[str, Any] = {"scheduled": 0, "running": 0}
    registered = RegisteredWorker(worker=worker, name=name, **(states | loads | row))
    return ObservedWorker(
        registered=registered,
        standing=standing_of(worker, watched_seconds=watched_seconds, policy=POLICY),
        queue=queue,
        ended_last_hour=ended_last_hour,
        expired_lately=expired_lately,
        was_stopped=registered.was_stopped(POLICY),
        is_on_time=is_on_time(worker, policy=POLICY),
        observation=observation,
    )


def a_brake(**state: Any) -> BrakeFact:
    return BrakeFact(
        view=BrakeView(state=BrakeState(**state), ended_last_minute=12, now=NOW),
        policy=BrakeOptions(max_decisions_per_minute=500, hold_seconds=600),
    )


def a_canary(state: CanaryState = CanaryState.OK) -> WorkerCanary:
    return WorkerCanary(worker_id=7, state=state, explanation="so it is", took_seconds=0.9)


def a_queue(
    name: str = "q", *, count: int = 1, ready: int = 0, tags: tuple[str, ...] = ("executor",)
) -> QueueFact:
    return QueueFact(name=name, consumers=Consumers(count=count, ready=ready, tags=tags))


def facts() -> dict[str, Any]:
    """Everything that can be known of a world in which all is well, by the view's field."""
    whole = check(a_stock_world(bindings=[bound("attune.dlx", INTAKE, dispatch_key())]), expectation())
    return {
        "database": DatabaseFact(answer_seconds=0.002),
        "tables": TablesFact(version="0003", schema="dlq_handler"),
        "rights": RightsFact(missing=(), role="sidecar"),
        "broker": BrokerFact(),
        "alarms": (),
        "topology": TopologyFact(checked=whole),
        "intake": a_queue(INTAKE, tags=("dlq-handler.one",)),
        "canaries": (a_canary(),),
        "gate": GateFact(causes=()),
        "brake": a_brake(),
        "is_shadow": False,
        "leader": LeaderFact(is_held=True, until=ago(-10)),
        "outbox": OutboxFact(pending=0, oldest_seconds=0.0),
        "workers": (a_worker(), a_worker(name="worker-shell", number=8)),
        "attune_monitor": AttuneMonitorFact(is_enabled=False, span_seconds=3600),
        "letters": LettersFact(span_seconds=900, unreadable=0, unrelated=0, before=0),
        "completions": a_queue("attune.execution.completed.queue"),
        "requests": a_queue("attune.execution.requests.queue"),
        "system_queues": SystemQueues(),
        "service_observations": ServiceObservations(observed_at=NOW, by_queue={}),
        "flows": FlowsFact(is_enabled=True, counts=dict.fromkeys(FlowStatus, 0)),
        "orphans": OrphansFact(queues=0, workers=0, ready=0),
    }


def a_view(**changed: Any) -> View:
    """All is well, but for what is changed."""
    return View(at=NOW, ttl_seconds=TTL_SECONDS, **(facts() | changed))


def collector_of(view: View | Callable[[], View], *, is_shadow: bool = False) -> ViewCollector:
    """A collector that always collects this view."""

    def now() -> View:
        return view() if callable(view) else view

    async def collect() -> View:
        return now()

    async def gate() -> GateFact | Unknown:
        return now().gate

    return cast("ViewCollector", SimpleNamespace(collect=collect, gate=gate, is_shadow=is_shadow))
