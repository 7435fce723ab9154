"""The retention step of diagnoses: changes that the chart no longer shows."""

from dlq_handler.diagnosis import diagnoses_sql
from dlq_handler.history.retention import RetentionStep

STEPS = (
    RetentionStep(
        name="diagnoses",
        delete=lambda database, policy, _: diagnoses_sql.delete_old(
            database, older_than_seconds=policy.history_seconds
        ),
    ),
)
