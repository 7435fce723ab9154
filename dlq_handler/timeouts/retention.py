"""The retention steps of the timeout monitor: decisions, counts of repeated requests, intervals without a consumer."""

from dlq_handler.history.retention import RetentionStep
from dlq_handler.host import unscheduled_sql
from dlq_handler.timeouts import decisions_sql, unconsumed_sql

STEPS = (
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
        name="unconsumed_intervals",
        delete=lambda database, policy, _: unconsumed_sql.delete_old(
            database, older_than_seconds=policy.resolved_seconds
        ),
    ),
)
