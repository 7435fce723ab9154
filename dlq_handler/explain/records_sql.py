"""Read everything that is on record about one execution. Secrets in errors and evidence are masked."""

from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.records_sql import for_people
from dlq_handler.endings.outbox_sql import OutboxProblem
from dlq_handler.explain.records import OutboxRecord, Records
from dlq_handler.host.story_sql import read_facts, read_transitions
from dlq_handler.host.unpublished_sql import monitor_end
from dlq_handler.timeouts import decisions_sql


async def records_of(database: Database, execution_id: int) -> Records:
    async with database.transaction() as tx:
        execution, now = await read_facts(tx, execution_id)
        outbox = await tx.rows(
            """
            SELECT CAST(message_id AS text) AS message_id, routing_key, created_at, attempts, confirmed_at,
                   next_attempt_at, lease_holder, lease_until, problem, last_error
              FROM own.outbox WHERE execution_id = :id
               -- Only unconfirmed entries have an index by execution; older ones belong to no present execution.
               AND (confirmed_at IS NULL OR created_at >= coalesce(CAST(:created AS timestamptz), '-infinity'))
             ORDER BY id
            """,
            id=execution_id,
            created=None if execution is None else execution.created,
        )
        history = await read_transitions(tx, execution_id)
        unpublished = await monitor_end(tx, execution_id)
    return Records(
        execution=execution,
        letters=await records_sql.of_execution(database, execution_id),
        decisions=await decisions_sql.of_execution(database, execution_id),
        outbox=[_outbox_record(entry) for entry in outbox],
        unpublished=unpublished,
        history=history,
        now=now,
    )


def _outbox_record(row: Row[Any]) -> OutboxRecord:
    problem = None if row.problem is None else OutboxProblem(row.problem)
    return OutboxRecord(**for_people(row) | {"problem": problem})
