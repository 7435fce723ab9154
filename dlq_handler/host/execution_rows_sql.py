"""An execution out of a row that has its columns, under their own names."""

from typing import Any

from sqlalchemy import Row

from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.workflow_tasks_sql import IS_WORKFLOW_TASK

EXECUTION_COLUMNS = f"""
    e.id, CAST(e.status AS text) AS status, e.updated, e.worker, e.action, e.action_ref,
    {IS_WORKFLOW_TASK} AS is_workflow_task
"""


def execution_of(row: Row[Any]) -> Execution:
    """Raises ValueError for a status that this version does not know."""
    return Execution(
        id=row.id,
        status=ExecutionStatus(row.status),
        updated=row.updated,
        worker_id=row.worker,
        action_id=row.action,
        action_ref=row.action_ref,
        is_workflow_task=row.is_workflow_task,
    )
