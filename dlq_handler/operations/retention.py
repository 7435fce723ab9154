"""The retention step of the audit: operations that are older than any dead letter on record."""

from dlq_handler.history.retention import RetentionStep
from dlq_handler.operations import audit_sql

STEPS = (
    RetentionStep(
        name="operations",
        delete=lambda database, policy, _: audit_sql.delete_old(
            database, older_than_seconds=policy.longest_seconds
        ),
    ),
)
