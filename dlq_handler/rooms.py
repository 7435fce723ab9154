"""What the rooms contribute to services that know none of them: label values of metrics, steps of retention."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn
from dlq_handler.dead_letters import groups_sql, records_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DEATH_REASONS, UNKNOWN_REASON
from dlq_handler.diagnosis import diagnoses_sql
from dlq_handler.diagnosis.check_services import ServiceFinding
from dlq_handler.endings import outbox_sql
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.history.retention import RetentionStep
from dlq_handler.host import unscheduled_sql
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import FlowStatus, StopStep
from dlq_handler.metric_values import LabelValues
from dlq_handler.metrics import Metrics
from dlq_handler.operations import audit_sql
from dlq_handler.safety.gate import GateCause
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decision import StaleOutcome
from dlq_handler.timeouts.findings import ReconcileFinding
from dlq_handler.topology.canary import CanaryState
from dlq_handler.workers import connections_sql, worker_observations_sql
from dlq_handler.workers.availability import Availability

LABEL_VALUES = LabelValues(
    reasons=(*DEATH_REASONS, UNKNOWN_REASON),
    outcomes=tuple(Outcome),
    stale_outcomes=[
        (status, outcome)
        for status in ExecutionStatus
        for outcome in StaleOutcome
        if status in outcome.original_statuses
    ],
    reconcile_findings=tuple(ReconcileFinding),
    gate_causes=tuple(GateCause),
    availabilities=tuple(Availability),
    service_findings=tuple(ServiceFinding),
    canary_states=tuple(CanaryState),
    flow_statuses=tuple(FlowStatus),
    flow_steps=tuple(StopStep),
)


def new_metrics() -> Metrics:
    return Metrics(LABEL_VALUES)


class _DeletesAtOnce(Protocol):
    def __call__(self, database: Database, *, older_than_seconds: float) -> Awaitable[int]: ...


class _DeletesInBatches(Protocol):
    def __call__(
        self, database: Database, *, older_than_seconds: float, may_go_on: MayGoOn
    ) -> Awaitable[int]: ...


_Age = Callable[[RetentionPolicy], float]


def _at_once(name: str, delete: _DeletesAtOnce, age: _Age) -> RetentionStep:
    return RetentionStep(
        name=name, delete=lambda database, policy, _: delete(database, older_than_seconds=age(policy))
    )


def _in_batches(name: str, delete: _DeletesInBatches, age: _Age) -> RetentionStep:
    return RetentionStep(
        name=name,
        delete=lambda database, policy, may_go_on: delete(
            database, older_than_seconds=age(policy), may_go_on=may_go_on
        ),
        is_logged=True,
    )


# In the order in which they run: the large tables, which are cleaned in batches, come first.
RETENTION_STEPS = (
    _in_batches("resolved", records_sql.delete_resolved, lambda policy: policy.resolved_seconds),
    _in_batches("unresolved", records_sql.delete_unresolved, lambda policy: policy.unresolved_seconds),
    _in_batches("completion_events", outbox_sql.delete_confirmed, lambda policy: policy.resolved_seconds),
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
    _at_once(
        "worker_observations",
        worker_observations_sql.delete_observations,
        lambda policy: policy.resolved_seconds,
    ),
    _at_once("unconsumed_intervals", decisions_sql.delete_intervals, lambda policy: policy.resolved_seconds),
    _at_once(
        "worker_connections", connections_sql.delete_old_connections, lambda policy: policy.resolved_seconds
    ),
    _at_once("minutes", groups_sql.delete_minutes, lambda policy: policy.history_seconds),
    _at_once("history_events", events_sql.delete_old, lambda policy: policy.history_seconds),
    _at_once("history", history_sql.delete_old, lambda policy: policy.history_seconds),
    _at_once("diagnoses", diagnoses_sql.delete_old, lambda policy: policy.history_seconds),
    _at_once("groups", groups_sql.delete_groups, lambda policy: policy.longest_seconds),
    _at_once("flows", flows_sql.delete_stopped, lambda policy: policy.resolved_seconds),
    _at_once("operations", audit_sql.delete_old, lambda policy: policy.longest_seconds),
)
