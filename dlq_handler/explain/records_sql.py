"""Read all that is on record about one execution. Whatever the host does not have, or does not let us read, is left
out: its history is a help, not a need. For people: what may be secret in an error or in evidence is masked.
"""

from dataclasses import fields
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.masked_rows_sql import for_people
from dlq_handler.endings.outbox_sql import WITHHELD
from dlq_handler.explain.records import ExecutionFacts, OutboxRecord, Records, Transition
from dlq_handler.host.execution import TERMINAL
from dlq_handler.host.unpublished_sql import monitor_end
from dlq_handler.timeouts import decisions_sql

_HISTORY_COLUMNS = ("time", "operation", "entity_id", "old_values", "new_values")


async def records_of(database: Database, execution_id: int) -> Records:
    async with database.transaction() as tx:
        row = await tx.row(
            """
            SELECT clock_timestamp() AS now, e.id, CAST(e.status AS text) AS status, e.action_ref, e.created, e.updated,
                   e.started_at, e.worker AS worker_id, e.parent AS parent_id, e.original_execution AS retry_of,
                   e.result ->> 'error' AS error,
                   coalesce(e.result ->> 'failed_by', e.result ->> 'abandoned_by', e.result ->> 'cancelled_by')
                       AS ended_by
              FROM (VALUES (1)) AS one(row) LEFT JOIN execution e ON e.id = :id
            """,
            id=execution_id,
        )
        assert row is not None  # noqa: S101  # joined to a row of our own
        outbox = await tx.rows(
            """
            SELECT CAST(message_id AS text) AS message_id, routing_key, created_at, attempts, confirmed_at,
                   next_attempt_at, lease_holder, lease_until, last_error, coalesce(last_error = :withheld,
                   false) AS is_withheld
              FROM own.outbox WHERE execution_id = :id
               -- Only the open ones have an index by execution; of the others, what is older needs no look.
               AND (confirmed_at IS NULL OR created_at >= coalesce(CAST(:created AS timestamptz), '-infinity'))
             ORDER BY id
            """,
            id=execution_id,
            created=row.created,
            withheld=WITHHELD,
        )
        history = await _history(tx, execution_id)
        unpublished = await monitor_end(tx, execution_id)
    return Records(
        execution=_facts(row) if row.id is not None else None,
        letters=await records_sql.of_execution(database, execution_id),
        decisions=await decisions_sql.of_execution(database, execution_id),
        outbox=[OutboxRecord(**for_people(entry)) for entry in outbox],
        unpublished=unpublished,
        history=history,
        now=row.now,
    )


async def _history(tx: Transaction, execution_id: int) -> list[Transition] | None:
    """None when the host keeps none that we know how to read, or does not let us."""
    readable = await tx.row(
        """
        SELECT count(*) AS columns FROM pg_attribute
         WHERE attrelid = to_regclass('execution_history') AND attname = ANY (CAST(:columns AS text[]))
           AND NOT attisdropped AND has_column_privilege(attrelid, attnum, 'SELECT')
        """,
        columns=list(_HISTORY_COLUMNS),
    )
    if readable is None or readable.columns < len(_HISTORY_COLUMNS):
        return None
    rows = await tx.rows(
        """
        SELECT time AS at, CASE WHEN operation = 'INSERT' THEN NULL ELSE old_values ->> 'status' END AS before,
               new_values ->> 'status' AS after, new_values ->> 'worker' AS worker
          FROM execution_history WHERE entity_id = :id AND new_values ->> 'status' IS NOT NULL ORDER BY time
        """,
        id=execution_id,
    )
    return [
        Transition(
            at=row.at,
            before=row.before,
            after=row.after,
            worker_id=int(row.worker) if row.worker and row.worker.isdecimal() else None,
        )
        for row in rows
    ]


def _facts(row: Row[Any]) -> ExecutionFacts:
    wanted = {field.name for field in fields(ExecutionFacts)}
    given = {name: value for name, value in for_people(row).items() if name in wanted}
    return ExecutionFacts(**given, is_terminal=row.status in {status.value for status in TERMINAL})
