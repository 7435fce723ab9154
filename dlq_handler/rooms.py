"""What the rooms contribute to services that know none of them: label values of metrics, steps of retention."""

from dlq_handler.dead_letters import groups_sql, records_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.diagnosis import diagnoses_sql
from dlq_handler.diagnosis.check_services import ServiceFinding
from dlq_handler.endings import outbox_sql
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.retention import RetentionStep
from dlq_handler.host import unscheduled_sql
from dlq_handler.metrics import LabelValues, Metrics
from dlq_handler.operations import audit_sql
from dlq_handler.safety.gate import GateCause
from dlq_handler.timeouts import decisions_sql, unconsumed_sql
from dlq_handler.timeouts.decision import StaleOutcome
from dlq_handler.timeouts.findings import Finding
from dlq_handler.topology.decide_canary import CanaryState
from dlq_handler.workers import connections_sql, worker_observations_sql
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


# In the order in which they run: the large tables, which are cleaned in batches, come first.
RETENTION_STEPS = (
    RetentionStep(
        name="resolved",
        delete=lambda database, policy, may_go_on: records_sql.delete_resolved(
            database, older_than_seconds=policy.resolved_seconds, may_go_on=may_go_on
        ),
        is_logged=True,
    ),
    RetentionStep(
        name="unresolved",
        delete=lambda database, policy, may_go_on: records_sql.delete_unresolved(
            database, older_than_seconds=policy.unresolved_seconds, may_go_on=may_go_on
        ),
        is_logged=True,
    ),
    RetentionStep(
        name="completion_events",
        delete=lambda database, policy, may_go_on: outbox_sql.delete_confirmed(
            database, older_than_seconds=policy.resolved_seconds, may_go_on=may_go_on
        ),
        is_logged=True,
    ),
    RetentionStep(
        name="decisions",
        delete=lambda database, policy, may_go_on: decisions_sql.delete_decisions(
            database,
            resolved_seconds=policy.resolved_seconds,
            unresolved_seconds=policy.unresolved_seconds,
            may_go_on=may_go_on,
        ),
        is_logged=True,
    ),
    RetentionStep(
        name="repeated_requests",
        # By the state of the execution, not by age.
        delete=lambda database, _, may_go_on: unscheduled_sql.delete_request_counts(
            database, may_go_on=may_go_on
        ),
    ),
    RetentionStep(
        name="worker_looks",
        delete=lambda database, policy, _: worker_observations_sql.delete_observations(
            database, older_than_seconds=policy.resolved_seconds
        ),
    ),
    RetentionStep(
        name="unconsumed_intervals",
        delete=lambda database, policy, _: unconsumed_sql.delete_old(
            database, older_than_seconds=policy.resolved_seconds
        ),
    ),
    RetentionStep(
        name="worker_connections",
        delete=lambda database, policy, _: connections_sql.delete_old_connections(
            database, older_than_seconds=policy.resolved_seconds
        ),
    ),
    RetentionStep(
        name="minutes",
        delete=lambda database, policy, _: groups_sql.delete_minutes(
            database, older_than_seconds=policy.history_seconds
        ),
    ),
    RetentionStep(
        name="history_events",
        delete=lambda database, policy, _: events_sql.delete_old(
            database, older_than_seconds=policy.history_seconds
        ),
    ),
    RetentionStep(
        name="history",
        delete=lambda database, policy, _: history_sql.delete_old(
            database, older_than_seconds=policy.history_seconds
        ),
    ),
    RetentionStep(
        name="diagnoses",
        delete=lambda database, policy, _: diagnoses_sql.delete_old(
            database, older_than_seconds=policy.history_seconds
        ),
    ),
    RetentionStep(
        name="groups",
        delete=lambda database, policy, _: groups_sql.delete_groups(
            database, older_than_seconds=policy.longest_seconds
        ),
    ),
    RetentionStep(
        name="operations",
        delete=lambda database, policy, _: audit_sql.delete_old(
            database, older_than_seconds=policy.longest_seconds
        ),
    ),
)
