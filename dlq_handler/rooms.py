"""What the rooms contribute to services that know none of them: label values of metrics, steps of retention."""

from dlq_handler.dead_letters import retention as dead_letters
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.diagnosis import retention as diagnosis
from dlq_handler.diagnosis.check_services import ServiceFinding
from dlq_handler.endings import retention as endings
from dlq_handler.history.retention import HISTORY_STEPS, WORKER_STEPS, RetentionStep
from dlq_handler.metrics import LabelValues, Metrics
from dlq_handler.operations import retention as operations
from dlq_handler.safety.gate import GateCause
from dlq_handler.timeouts import retention as timeouts
from dlq_handler.timeouts.decision import StaleOutcome
from dlq_handler.timeouts.findings import Finding
from dlq_handler.topology.decide_canary import CanaryState
from dlq_handler.workers.availability import Availability

_ENDS = {
    "requested": StaleOutcome.FAILED,
    "scheduling": StaleOutcome.FAILED,
    "scheduled": StaleOutcome.FAILED,
    "running": StaleOutcome.ABANDONED,
    "canceling": StaleOutcome.CANCELLED,
}

LABEL_VALUES = LabelValues(
    reasons=(*DEATH_REASONS, UNKNOWN_REASON),
    outcomes=tuple(Outcome),
    stale_outcomes=[
        (status, outcome) for status, end in _ENDS.items() for outcome in (end, StaleOutcome.UPDATE_FAILED)
    ],
    reconcile_findings=tuple(Finding),
    gate_causes=tuple(GateCause),
    availabilities=tuple(Availability),
    service_findings=tuple(ServiceFinding),
    canary_states=tuple(CanaryState),
)


def new_metrics() -> Metrics:
    return Metrics(LABEL_VALUES)


def retention_steps() -> tuple[RetentionStep, ...]:
    """All steps, in the order in which they run. The large tables, which are cleaned in batches, come first."""
    # A step that a room adds fails the type check until it is unpacked here. Give it its place below, too.
    resolved, unresolved, minutes, groups = dead_letters.STEPS
    (confirmed_events,) = endings.STEPS
    decisions, repeated_requests, unconsumed_intervals = timeouts.STEPS
    worker_looks, worker_connections = WORKER_STEPS
    events, worker_changes = HISTORY_STEPS
    (diagnoses,) = diagnosis.STEPS
    (audit,) = operations.STEPS
    return (
        resolved,
        unresolved,
        confirmed_events,
        decisions,
        repeated_requests,
        worker_looks,
        unconsumed_intervals,
        worker_connections,
        minutes,
        events,
        worker_changes,
        diagnoses,
        groups,
        audit,
    )
