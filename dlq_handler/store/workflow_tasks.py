"""What the host did about a workflow task. Read only: its rows are its own."""

from collections.abc import Collection

from dlq_handler.store.engine import Database


async def already_retried(database: Database, execution_ids: Collection[int]) -> frozenset[int]:
    """Those of these executions whose end the host has answered with a retry.

    A retry names its original, or is the same task of the same parent with a higher count. The counts are the host's
    JSON: compared only where they are whole numbers, since one odd value must not hold up everybody's notices.
    """
    async with database.transaction() as tx:
        rows = await tx.rows(
            r"""
            SELECT done.id FROM execution done
             WHERE done.id = ANY (CAST(:ids AS bigint[])) AND EXISTS (
                SELECT FROM execution again
                 WHERE again.id <> done.id AND (
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
