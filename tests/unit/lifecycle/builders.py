"""Flows and observations that take only what matters."""

from datetime import UTC, datetime
from typing import Any

from dlq_handler.lifecycle.flow import Flow, FlowKind, FlowStatus, FlowWorkerState, ObservedQueue, StopStep
from dlq_handler.lifecycle.flow_blueprint import worker_blueprint
from dlq_handler.lifecycle.options import LifecycleOptions

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = "this process"
OPTIONS = LifecycleOptions(enabled=True)
QUEUES = worker_blueprint().expand({"id": "7"}).flow
EXECUTIONS, PACKS, CANCEL = QUEUES


def a_flow(**fields: Any) -> Flow:
    given = {
        "id": "w7",
        "kind": FlowKind.FLOW,
        "blueprint": "worker",
        "params": {"id": "7"},
        "status": FlowStatus.STOPPING,
        "step": None,
        "version": 1,
        "worker_id": 7,
        "queues": QUEUES,
        "since": NOW,
        "step_since": NOW,
        "last_lease": LEASE,
    }
    return Flow(**given | fields)


def rerouted(step: StopStep = StopStep.DRAINED, **fields: Any) -> Flow:
    """A stop after its keys were unbound."""
    return a_flow(
        **{"step": step, "is_retired_bound": True, "rerouted_at": NOW, "idle_heartbeat": NOW} | fields
    )


def a_stopped_worker(**fields: Any) -> FlowWorkerState:
    given: dict[str, Any] = {
        "last_heartbeat": NOW,
        "has_stopped": True,
        "has_registered": False,
        "is_cordoned": True,
    }
    return FlowWorkerState(**given | fields)


def a_queue(ready: int = 0, consumers: int = 0, unacked: int | None = None) -> ObservedQueue:
    return ObservedQueue(ready=ready, consumers=consumers, unacked=unacked)
