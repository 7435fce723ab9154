"""The retention steps of dead letters: records, counts by minute, groups."""

from dlq_handler.dead_letters import groups_sql, records_sql
from dlq_handler.history.retention import RetentionStep

STEPS = (
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
        name="minutes",
        delete=lambda database, policy, _: groups_sql.delete_minutes(
            database, older_than_seconds=policy.history_seconds
        ),
    ),
    RetentionStep(
        name="groups",
        delete=lambda database, policy, _: groups_sql.delete_groups(
            database, older_than_seconds=policy.longest_seconds
        ),
    ),
)
