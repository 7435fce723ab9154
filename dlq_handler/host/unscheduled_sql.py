"""Executions that are requested or scheduling for too long, with what may make their waiting lawful.

Read page by page along the host's (status, updated) index, each row once a scan. Nothing is locked: a request may be
repeated whatever becomes of the row meanwhile, and an end is guarded by its own statement.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.admission_sql import has_admission
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.execution_rows_sql import EXECUTION_COLUMNS, execution_of
from dlq_handler.host.messages import Notice, repeated_request
from dlq_handler.host.stale_sql import IS_REFUSED
from dlq_handler.host.unscheduled import Unscheduled
from dlq_handler.host.workflow_tasks_sql import is_workflow_parent

Place = tuple[datetime, int]
"""A place in the order of a scan: `updated` and id of the last row seen."""

BEGINNING: Place = (datetime(1970, 1, 1, tzinfo=UTC), 0)

# With LIMIT 1, as EXISTS may be planned as a join of everything.
_IN_LINE = """
    coalesce((SELECT true FROM execution_admission_entry entry
               WHERE entry.execution_id = e.id AND entry.status = 'queued' LIMIT 1), false)
"""

_COLUMNS = f"""
    {EXECUTION_COLUMNS}, statement_timestamp() AS now, e.workflow_task ->> 'next_retry_at' AS next_retry_at,
    again.last_at AS announced_again_at, coalesce(again.requests, 0) AS requests,
    coalesce((SELECT true FROM own.outbox WHERE outbox.execution_id = e.id AND outbox.confirmed_at IS NULL LIMIT 1),
             false) AS has_unconfirmed
"""  # noqa: S608  # our own text throughout

# Who runs it reads the row. A config of megabytes, as a caller may give it, would fill the outbox.
_CONFIG = "CASE WHEN pg_column_size(e.config) <= 8192 THEN CAST(e.config AS text) END AS config"

_ANNOUNCED_AGAIN = """
    LEFT JOIN own.repeated_request again ON again.execution_id = e.id AND again.is_shadow = :is_shadow
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnscheduledRow:
    row: Unscheduled
    now: datetime
    """The database's clock."""


async def unscheduled_page(
    tx: Transaction,
    status: ExecutionStatus,
    *,
    older_than_seconds: float,
    after: Place,
    limit: int,
    is_shadow: bool,
) -> Sequence[UnscheduledRow]:
    """The oldest first, those that wait in a line left out: there may be very many of them, and all may wait.

    `is_shadow` says which requests count: those that were published, or those that would have been published.
    """
    in_line = f"AND NOT {_IN_LINE}" if await has_admission(tx) else ""
    # The status is a bare literal, as the enum's name is the host's own business. The time is the statement's, because
    # no index can be searched by a clock that moves.
    rows = await tx.rows(
        f"""
        SELECT {_COLUMNS}, {await is_workflow_parent(tx)} AS is_workflow_parent, false AS is_in_line
          FROM (SELECT * FROM execution e
                 WHERE e.status = '{status.value}'
                   AND e.updated <= statement_timestamp() - make_interval(secs => :age)
                   AND (e.updated, e.id) > (:after_updated, :after_id) {in_line}
                   -- Those that the database refused to let end wait until they are due again.
                   AND NOT {IS_REFUSED}
                 ORDER BY e.updated, e.id LIMIT :limit) AS e
          {_ANNOUNCED_AGAIN}
         ORDER BY e.updated, e.id
        """,  # noqa: S608  # our own text throughout
        age=float(older_than_seconds),
        after_updated=after[0],
        after_id=after[1],
        limit=limit,
        is_shadow=is_shadow,
    )
    return [_row(row) for row in rows]


async def unscheduled_row(tx: Transaction, execution_id: int) -> UnscheduledRow | None:
    """One execution, whatever its status or age."""
    in_line = _IN_LINE if await has_admission(tx) else "false"
    row = await tx.row(
        f"""
        SELECT {_COLUMNS}, {await is_workflow_parent(tx)} AS is_workflow_parent, {in_line} AS is_in_line
          FROM execution e {_ANNOUNCED_AGAIN} WHERE e.id = :id
        """,  # noqa: S608  # our own text throughout
        id=execution_id,
        is_shadow=False,
    )
    return None if row is None else _row(row)


async def count_overdue(database: Database, *, older_than_seconds: float) -> int:
    """Executions of that age that are requested or scheduling, and that nothing allows to wait: neither a line nor the
    time of a retry. Without parents of workflows.
    """
    async with database.transaction() as tx:
        in_line = _IN_LINE if await has_admission(tx) else "false"
        [row] = await tx.rows(
            f"""
            SELECT count(*) AS executions FROM execution e
             WHERE e.status IN ('requested', 'scheduling')
               AND e.updated <= statement_timestamp() - make_interval(secs => :age)
               -- As text: both are ISO 8601 in UTC, and what others wrote may be no time at all.
               AND coalesce(e.workflow_task ->> 'next_retry_at', '')
                   <= to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
               AND NOT {in_line} AND NOT {await is_workflow_parent(tx)}
            """,  # noqa: S608  # our own text throughout
            age=float(older_than_seconds),
        )
    return int(row.executions)


async def requests_for(
    tx: Transaction, executions: Mapping[int, Execution], *, number_of: Mapping[int, int], now: datetime
) -> list[Notice]:
    """The scheduler's requests for these, to be published again. `number_of`: the number of each request."""
    rows = await tx.rows(
        f"""
        SELECT e.id, e.parent, e.enforcement, {_CONFIG} FROM execution e
         WHERE e.id = ANY (CAST(:ids AS bigint[])) ORDER BY e.id
        """,  # noqa: S608  # our own text throughout
        ids=sorted(executions),
    )
    return [
        repeated_request(
            executions[row.id],
            parent_id=row.parent,
            enforcement_id=row.enforcement,
            config=None if row.config is None else json.loads(row.config),
            number=number_of[row.id],
            now=now,
        )
        for row in rows
    ]


def _row(row: Row[Any]) -> UnscheduledRow:
    unscheduled = Unscheduled(
        execution=execution_of(row),
        is_in_line=row.is_in_line,
        next_retry_at=row.next_retry_at,
        is_workflow_parent=row.is_workflow_parent,
        announced_again_at=row.announced_again_at,
        requests=row.requests,
        has_unconfirmed=row.has_unconfirmed,
    )
    return UnscheduledRow(row=unscheduled, now=row.now)
