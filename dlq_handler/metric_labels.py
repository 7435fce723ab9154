"""Give the metrics the label values that the rooms define."""

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.diagnosis.check_services import ServiceFinding
from dlq_handler.metrics import LabelValues, Metrics
from dlq_handler.safety.gate import GateCause
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
