"""What the host's rows say about workflows: which execution is a task, which one a parent, and which task was retried.

The only place that asks: Attune writes `workflow_task` as JSON null, not as SQL NULL, on every ordinary execution, and
never writes `workflow_def`. A test for SQL NULL takes every execution for a workflow task. Read only.
"""

from collections.abc import Collection

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction

IS_WORKFLOW_TASK = "coalesce(jsonb_typeof(e.workflow_task) = 'object', false)"
"""Of the row `e` of execution."""

# PostgreSQL's numbers go beyond those of a double.
OWN_RUN_LIMIT = """
    CASE WHEN jsonb_typeof(e.workflow_task -> 'timeout_seconds') = 'number'
              AND e.workflow_task -> 'timeout_seconds' > '0'
         THEN CAST(least(CAST(e.workflow_task ->> 'timeout_seconds' AS numeric), 1000000000)
                   AS double precision) END
"""
"""Of the row `e` of execution: seconds after which the host ends its run; NULL: it has no limit of its own."""

# With LIMIT 1, as EXISTS may be planned as a join of everything.
_HAS_CHILDREN = "(SELECT true FROM execution task WHERE task.parent = e.id LIMIT 1)"
_HAS_STARTED = "(SELECT true FROM workflow_execution started WHERE started.execution = e.id LIMIT 1)"
_RUNS_A_WORKFLOW = "(SELECT true FROM action WHERE action.id = e.action AND action.workflow_def IS NOT NULL)"


async def is_workflow_parent(tx: Transaction) -> str:
    """SQL that tells whether the row `e` of execution is the parent of a workflow, by all that can be read here.

    Each of the three is enough: the parent has children, the workflow has been started, the action is a workflow.
    """
    # By the catalog: a host without these tables, or one that does not let us read them, must not fail the statement.
    row = await tx.row(
        """
        SELECT coalesce(has_table_privilege(to_regclass('workflow_execution'), 'SELECT'), false) AS has_started,
               EXISTS (SELECT FROM pg_attribute
                        WHERE attrelid = to_regclass('action') AND attname = 'workflow_def' AND NOT attisdropped
                          AND has_column_privilege(attrelid, attnum, 'SELECT')) AS runs_a_workflow
        """
    )
    asked = [_HAS_CHILDREN]
    if row is not None and row.has_started:
        asked.append(_HAS_STARTED)
    if row is not None and row.runs_a_workflow:
        asked.append(_RUNS_A_WORKFLOW)
    return f"coalesce({', '.join(asked)}, false)"


async def already_retried(database: Database, execution_ids: Collection[int]) -> frozenset[int]:
    """Those of these executions whose end the host has answered with a retry.

    A retry names its original, or is the same task of the same parent with a higher count. The counts are the host's
    JSON: compared only where they are whole numbers, since one odd value must not hold up everybody's notices.
    """
    async with database.transaction() as tx:
        return await retried_among(tx, execution_ids)


async def retried_among(tx: Transaction, execution_ids: Collection[int]) -> frozenset[int]:
    """The same, inside a transaction.

    Only a later row is a retry: an older attempt with a higher count, of a host that counts otherwise, would withhold
    the completion event for ever.
    """
    rows = await tx.rows(
        r"""
        SELECT done.id FROM execution done
         WHERE done.id = ANY (CAST(:ids AS bigint[])) AND EXISTS (
            SELECT FROM execution again
             WHERE again.id > done.id AND (
                again.original_execution = done.id
                OR (again.parent = done.parent
                    AND (again.config ->> 'retry_of' = CAST(done.id AS text)
                         OR (again.workflow_task ->> 'task_name' = done.workflow_task ->> 'task_name'
                             AND again.workflow_task ->> 'task_index'
                                 IS NOT DISTINCT FROM done.workflow_task ->> 'task_index'
                             AND CASE WHEN again.workflow_task ->> 'retry_count' ~ '^[0-9]{1,9}$'
                                      THEN CAST(again.workflow_task ->> 'retry_count' AS integer)
                                      ELSE 0 END
                                 > CASE WHEN done.workflow_task ->> 'retry_count' ~ '^[0-9]{1,9}$'
                                        THEN CAST(done.workflow_task ->> 'retry_count' AS integer)
                                        ELSE 0 END)))))
        """,
        ids=sorted(set(execution_ids)),
    )
    return frozenset(row.id for row in rows)
