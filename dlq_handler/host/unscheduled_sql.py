"""Executions that are requested or scheduling for too long, what allows them to wait, and their repeated requests.

Read page by page along the host's (status, updated) index, each row once a scan. Nothing is locked: a request may be
repeated whatever becomes of the row meanwhile, and an end is guarded by its own statement. The count of requests
belongs to an execution, not to a state of its row. It is deleted when the execution was scheduled or has ended.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn, always, delete_in_batches
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import Execution, ExecutionStatus, Page, Place, Unscheduled
from dlq_handler.host.executions_sql import (
    EXECUTION_COLUMNS,
    PAGE_COLUMNS,
    execution_of,
    has_admission,
    is_workflow_parent,
)
from dlq_handler.host.messages import Destination, ExecutionMessage, repeated_request
from dlq_handler.host.stale_sql import IS_REFUSED

# With LIMIT 1, as EXISTS may be planned as a join of everything.
_WAITS_FOR_SLOT = """
    coalesce((SELECT true FROM execution_admission_entry entry
               WHERE entry.execution_id = e.id AND entry.status = 'queued' LIMIT 1), false)
"""

_COLUMNS = f"""
    {EXECUTION_COLUMNS}, statement_timestamp() AS now, e.workflow_task ->> 'next_retry_at' AS next_retry_at,
    again.last_at AS republished_at, coalesce(again.requests, 0) AS requests,
    coalesce((SELECT true FROM own.outbox WHERE outbox.execution_id = e.id AND outbox.confirmed_at IS NULL LIMIT 1),
             false) AS has_unconfirmed
"""  # noqa: S608  # constant text

# The scheduler reads the row. A config of megabytes, as a caller may give it, would fill the outbox.
_CONFIG = "CASE WHEN pg_column_size(e.config) <= 8192 THEN CAST(e.config AS text) END AS config"

_REQUESTED_AGAIN = """
    LEFT JOIN own.repeated_request again ON again.execution_id = e.id AND again.is_shadow = :is_shadow
"""


async def unscheduled_page(
    tx: Transaction,
    after: Place,
    *,
    status: ExecutionStatus,
    older_than_seconds: float,
    limit: int,
    is_shadow: bool,
) -> Page[Unscheduled, Place]:
    """The oldest first, without those that wait for a slot: there may be very many of them, and all may wait.

    `is_shadow` says which requests count: those that were published, or those that would have been published.
    """
    slot = f"AND NOT {_WAITS_FOR_SLOT}" if await has_admission(tx) else ""
    # The status is a bare literal, as the enum's name is the host's own business. The time is the statement's, because
    # no index can be searched by a clock that moves.
    rows = await tx.rows(
        f"""
        SELECT {_COLUMNS}, {await is_workflow_parent(tx)} AS is_workflow_parent, false AS waits_for_slot
          FROM (SELECT {PAGE_COLUMNS} FROM execution e
                 WHERE e.status = '{status.value}'
                   AND e.updated <= statement_timestamp() - make_interval(secs => :age)
                   AND (e.updated, e.id) > (:after_updated, :after_id) {slot}
                   -- Those that the database refused to let end wait until they are due again.
                   AND NOT {IS_REFUSED}
                 ORDER BY e.updated, e.id LIMIT :limit) AS e
          {_REQUESTED_AGAIN}
         ORDER BY e.updated, e.id
        """,  # noqa: S608  # constant text
        age=float(older_than_seconds),
        after_updated=after[0],
        after_id=after[1],
        limit=limit,
        is_shadow=is_shadow,
    )
    return Page(
        found=[_unscheduled(row) for row in rows],
        last=(rows[-1].updated, rows[-1].id) if len(rows) == limit else None,
    )


async def unscheduled_row(tx: Transaction, execution_id: int) -> Unscheduled | None:
    """One execution, whatever its status or age."""
    slot = _WAITS_FOR_SLOT if await has_admission(tx) else "false"
    row = await tx.row(
        f"""
        SELECT {_COLUMNS}, {await is_workflow_parent(tx)} AS is_workflow_parent, {slot} AS waits_for_slot
          FROM execution e {_REQUESTED_AGAIN} WHERE e.id = :id
        """,  # noqa: S608  # constant text
        id=execution_id,
        is_shadow=False,
    )
    return None if row is None else _unscheduled(row)


async def count_overdue(database: Database, *, older_than_seconds: float) -> int:
    """Executions of that age that are requested or scheduling, and that nothing allows to wait: neither a slot nor the
    time of a retry. Without parents of workflows.
    """
    async with database.transaction() as tx:
        slot = _WAITS_FOR_SLOT if await has_admission(tx) else "false"
        [row] = await tx.rows(
            f"""
            SELECT count(*) AS executions FROM execution e
             WHERE e.status IN ('requested', 'scheduling')
               AND e.updated <= statement_timestamp() - make_interval(secs => :age)
               -- As text: both are ISO 8601 in UTC, and what others wrote may be no time at all.
               AND coalesce(e.workflow_task ->> 'next_retry_at', '')
                   <= to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
               AND NOT {slot} AND NOT {await is_workflow_parent(tx)}
            """,  # noqa: S608  # constant text
            age=float(older_than_seconds),
        )
    return int(row.executions)


async def requests_for(
    tx: Transaction,
    executions: Mapping[int, Execution],
    *,
    number_of: Mapping[int, int],
    destination: Destination,
    now: datetime,
) -> list[ExecutionMessage]:
    """The scheduler's requests for these, to be published again. `number_of`: the number of each request."""
    rows = await tx.rows(
        f"""
        SELECT e.id, e.parent, e.enforcement, {_CONFIG} FROM execution e
         WHERE e.id = ANY (CAST(:ids AS bigint[])) ORDER BY e.id
        """,  # noqa: S608  # constant text
        ids=sorted(executions),
    )
    return [
        repeated_request(
            executions[row.id],
            parent_id=row.parent,
            enforcement_id=row.enforcement,
            config=None if row.config is None else json.loads(row.config),
            number=number_of[row.id],
            destination=destination,
            now=now,
        )
        for row in rows
    ]


async def count_requests(tx: Transaction, requests: Mapping[int, int], *, is_shadow: bool) -> set[int]:
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


async def count_at_request_limit(database: Database, limit: int) -> int:
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


async def delete_request_counts(database: Database, *, may_go_on: MayGoOn = always) -> int:
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


def _unscheduled(row: Row[Any]) -> Unscheduled:
    return Unscheduled(
        execution=execution_of(row),
        waits_for_slot=row.waits_for_slot,
        next_retry_at=row.next_retry_at,
        is_workflow_parent=row.is_workflow_parent,
        republished_at=row.republished_at,
        requests=row.requests,
        has_unconfirmed=row.has_unconfirmed,
        now=row.now,
    )


async def count_requested(database: Database) -> int:
    """Executions that are not scheduled yet, for whatever reason."""
    async with database.transaction() as tx:
        [row] = await tx.rows("SELECT count(*) AS requested FROM execution WHERE status = 'requested'")
    return int(row.requested)
