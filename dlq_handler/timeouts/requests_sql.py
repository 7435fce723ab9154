"""How often the request of each execution was published again, shared by all replicas.

A row belongs to an execution, not to a state of its row. It is deleted when the execution was scheduled or has ended.
"""

from collections.abc import Mapping

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn, always, delete_in_batches
from dlq_handler.database.transaction import Transaction


async def note(tx: Transaction, requests: Mapping[int, int], *, is_shadow: bool) -> set[int]:
    """Count one more request for each execution; `requests` says how many there were. Returns the executions counted.

    An execution that another transaction has counted meanwhile is left out.
    """
    ids = sorted(requests)
    rows = await tx.rows(
        """
        INSERT INTO own.repeated_request AS known (execution_id, is_shadow, requests, last_at)
        SELECT given.id, :is_shadow, given.before + 1, statement_timestamp()
          FROM unnest(CAST(:ids AS bigint[]), CAST(:before AS integer[])) AS given(id, before)
         ORDER BY given.id
        ON CONFLICT (execution_id, is_shadow) DO UPDATE
           SET requests = excluded.requests, last_at = excluded.last_at
         WHERE known.requests = excluded.requests - 1
        RETURNING execution_id
        """,
        ids=ids,
        before=[requests[one] for one in ids],
        is_shadow=is_shadow,
    )
    return {row.execution_id for row in rows}


async def count_at_limit(database: Database, limit: int) -> int:
    """Executions that still wait, and whose request was published as often as the limit allows."""
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT count(*) AS executions
              FROM own.repeated_request repeated JOIN execution e ON e.id = repeated.execution_id
             WHERE repeated.requests >= :limit AND NOT repeated.is_shadow AND e.status IN ('requested', 'scheduling')
            """,
            limit=max(limit, 1),
        )
    return int(row.executions)


async def delete_old(database: Database, *, may_go_on: MayGoOn = always) -> int:
    """Delete the counts of executions that do not wait for the scheduler anymore. Returns their number."""
    return await delete_in_batches(
        database,
        "repeated_request",
        """
        coalesce((SELECT e.status NOT IN ('requested', 'scheduling') FROM execution e
                   WHERE e.id = repeated_request.execution_id), true)
        """,
        may_go_on=may_go_on,
    )
