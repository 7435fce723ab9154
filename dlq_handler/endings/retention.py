"""The retention step of the outbox: completion events that the broker confirmed."""

from dlq_handler.endings import outbox_sql
from dlq_handler.history.retention import RetentionStep

STEPS = (
    RetentionStep(
        name="completion_events",
        delete=lambda database, policy, may_go_on: outbox_sql.delete_confirmed(
            database, older_than_seconds=policy.resolved_seconds, may_go_on=may_go_on
        ),
        is_logged=True,
    ),
)
