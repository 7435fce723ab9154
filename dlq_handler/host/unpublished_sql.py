"""Find executions that Attune's own timeout monitor ended and whose completion events may be lost. Read only, in pages.

Only rows that still have a worker: deleting a worker moves the `updated` of every row that it ever had, and would bring
ends of months ago into an interval of today.
"""

import json
import math
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.ends import ENDED_BY_MONITOR, STOCK_MONITOR, EndedTask, MonitorEnd, UnconsumedInterval
from dlq_handler.host.execution import ExecutionStatus, Page, Place
from dlq_handler.host.executions_sql import EXECUTION_COLUMNS, has_admission, retried_among
from dlq_handler.host.reconcile_sql import IS_END_PUBLISHED, RESULT, end_without_event

_NEWEST_ENDS = 100
"""Of one minute and status."""
_STATUSES = ", ".join(f"'{status.value}'" for status in sorted(ENDED_BY_MONITOR))
_IS_SIGNED = f"""
    coalesce(e.result ->> 'failed_by', e.result ->> 'abandoned_by') = '{STOCK_MONITOR}' AND e.worker IS NOT NULL
"""
_HOLDS_SLOT = """
    coalesce((SELECT true FROM execution_admission_entry slot
               WHERE slot.execution_id = e.id AND slot.status = 'active' LIMIT 1), false)
"""


async def ends_within(
    tx: Transaction,
    after: Place,
    *,
    interval: UnconsumedInterval,
    status: ExecutionStatus,
    limit: int,
    is_shadow: bool,
) -> Page[MonitorEnd, Place]:
    """Walk the executions of one status along the host's (status, updated) index, from one end of the interval to the
    other.
    """
    rows = await tx.rows(
        f"""
        SELECT e.id, e.updated, {_IS_SIGNED} AND NOT {IS_END_PUBLISHED} AS is_unpublished
          FROM execution e
         WHERE e.status = '{status.value}' AND e.updated >= :began_at AND e.updated <= :last_observed_at
           AND (e.updated, e.id) > (:after_updated, :after_id)
         ORDER BY e.updated, e.id LIMIT :limit
        """,  # noqa: S608  # constant text, and a member of an own enum
        began_at=interval.began_at,
        last_observed_at=interval.last_observed_at,
        after_updated=after[0],
        after_id=after[1],
        limit=limit,
        is_shadow=is_shadow,
    )
    found = [row.id for row in rows if row.is_unpublished]
    return Page(
        found=await _ends(tx, found, interval),
        last=(rows[-1].updated, rows[-1].id) if len(rows) == limit else None,
    )


async def tasks_with_slots(
    tx: Transaction, after_id: int, *, held_seconds: float, limit: int, is_shadow: bool
) -> Page[MonitorEnd, int]:
    """Workflow tasks that hold a slot although they ended that long ago, by execution id. All other executions with
    slots are found by `held_slots`.
    """
    if not await has_admission(tx):
        return Page(found=[], last=None)
    rows = await tx.rows(
        f"""
        SELECT slot.execution_id AS id,
               coalesce(e.is_workflow_task AND e.is_ended AND {_IS_SIGNED} AND NOT {IS_END_PUBLISHED}, false)
                   AS is_unpublished
          FROM (SELECT execution_id FROM execution_admission_entry
                 WHERE status = 'active' AND execution_id > :after_id
                   AND coalesce(activated_at, created) <= statement_timestamp() - make_interval(secs => :held)
                 ORDER BY execution_id LIMIT :limit) AS slot
          LEFT JOIN LATERAL (
            SELECT {EXECUTION_COLUMNS}, e.result,
                   CAST(e.status AS text) IN ({_STATUSES})
                     AND e.updated <= statement_timestamp() - make_interval(secs => :held) AS is_ended
              FROM execution e WHERE e.id = slot.execution_id) AS e ON true
         ORDER BY slot.execution_id
        """,  # noqa: S608  # constant text
        held=float(held_seconds),
        after_id=after_id,
        limit=limit,
        is_shadow=is_shadow,
    )
    found = [row.id for row in rows if row.is_unpublished]
    return Page(found=await _ends(tx, found, None), last=rows[-1].id if len(rows) == limit else None)


async def monitor_end(tx: Transaction, execution_id: int) -> MonitorEnd | None:
    """One execution. None: Attune's monitor did not end it, dlq-handler published its end, or nothing says that it was
    not published.
    """
    slot = _HOLDS_SLOT if await has_admission(tx) else "false"
    row = await tx.row(
        f"""
        SELECT gap.began_at, gap.last_observed_at, {slot} AS holds_slot
          FROM execution e LEFT JOIN LATERAL (
            SELECT began_at, last_observed_at FROM own.unconsumed_interval
             WHERE e.updated >= began_at AND e.updated <= last_observed_at ORDER BY id LIMIT 1) AS gap ON true
         WHERE e.id = :id AND CAST(e.status AS text) IN ({_STATUSES}) AND {_IS_SIGNED} AND NOT {IS_END_PUBLISHED}
        """,  # noqa: S608  # constant text
        id=execution_id,
        is_shadow=False,
    )
    if row is None:
        return None
    if row.began_at is not None:
        interval = UnconsumedInterval(began_at=row.began_at, last_observed_at=row.last_observed_at)
        [end] = await _ends(tx, [execution_id], interval)
        return end
    if row.holds_slot:
        [end] = await _ends(tx, [execution_id], None)
        return end
    return None


async def _ends(
    tx: Transaction, ids: Collection[int], interval: UnconsumedInterval | None
) -> list[MonitorEnd]:
    """These executions, with what the host did about them. `interval`: they ended within it."""
    if not ids:
        return []
    may_read = await tx.row(
        "SELECT coalesce(has_table_privilege(to_regclass('workflow_execution'), 'SELECT'), false) AS workflows"
    )
    is_workflow_readable = may_read is not None and bool(may_read.workflows)
    workflow = _WORKFLOW if is_workflow_readable else _NO_WORKFLOW
    rows = await tx.rows(
        f"""
        SELECT {EXECUTION_COLUMNS}, {RESULT}, CAST(parent.status AS text) AS parent_status,
               left(CAST(e.workflow_task -> 'retry_count' AS text), 16) AS retry_count,
               left(CAST(e.workflow_task -> 'max_retries' AS text), 16) AS max_retries, workflow.is_advanced,
               workflow.retry
          FROM execution e
          LEFT JOIN execution parent ON parent.id = e.parent
          LEFT JOIN LATERAL ({workflow}) AS workflow ON true
         WHERE e.id = ANY (CAST(:ids AS bigint[])) ORDER BY e.updated, e.id
        """,  # noqa: S608  # constant text
        ids=list(ids),
    )
    tasks = [row.id for row in rows if row.is_workflow_task]
    retried = await retried_among(tx, tasks) if tasks else frozenset()
    return [
        MonitorEnd(
            end=end_without_event(row, interval.evidence if interval else {}),
            interval=interval,
            task=_task(row, is_retried=row.id in retried, is_workflow_readable=is_workflow_readable)
            if row.is_workflow_task
            else None,
        )
        for row in rows
    ]


# A task of several items ends once for each item, and its name is listed after the first that failed.
_WORKFLOW = """
    SELECT coalesce(e.workflow_task ->> 'task_index' IS NULL
                    AND e.workflow_task ->> 'task_name' = ANY (w.completed_tasks || w.failed_tasks), false)
               AS is_advanced,
           left(CAST(w.task_graph #> ARRAY['nodes', e.workflow_task ->> 'task_name', 'retry'] AS text), 4096) AS retry
      FROM workflow_execution w WHERE w.execution = e.parent
"""
_NO_WORKFLOW = "SELECT false AS is_advanced, NULL AS retry"


def _task(row: Row[Any], *, is_retried: bool, is_workflow_readable: bool) -> EndedTask:
    return EndedTask(
        parent_status=row.parent_status,
        is_retried=is_retried,
        is_advanced=bool(row.is_advanced),
        is_workflow_readable=is_workflow_readable,
        retry_count=_json(row.retry_count),
        max_retries=_json(row.max_retries),
        retry=_json(row.retry),
    )


def _json(text: str | None) -> object:
    """None also for what was cut."""
    try:
        value: object = None if text is None else json.loads(text)
    except ValueError:
        return None
    return value


async def count_monitor_ends(database: Database, *, within_seconds: float) -> tuple[int, datetime | None]:
    """Executions that Attune's own timeout monitor ended lately, and the time of the first. Of the newest ends of each
    minute alone: an hour may hold a million, and a flood of other ends must hide no more than its own minutes. The
    monitor's result is small; a large one is not read.

    Only rows that still have a worker: deleting a worker moves the `updated` of every row that it ever had, and would
    make ends of months ago appear new.
    """
    newest = " UNION ALL ".join(
        f"""
        (SELECT result, updated, worker FROM execution
          WHERE status = '{status.value}'
            AND updated > statement_timestamp() - make_interval(mins => minute + 1)
            AND updated <= statement_timestamp() - make_interval(mins => minute)
          ORDER BY updated DESC LIMIT :newest)
        """  # noqa: S608  # a member of an own enum
        for status in sorted(ENDED_BY_MONITOR)
    )
    async with database.transaction() as tx:
        [row] = await tx.rows(
            f"""
            SELECT count(*) AS ends, min(updated) AS first_at
              FROM generate_series(0, CAST(:minutes AS integer) - 1) AS minute CROSS JOIN LATERAL ({newest}) AS ended
             WHERE worker IS NOT NULL
               AND CASE WHEN pg_column_size(result) < 2000
                        THEN :monitor IN (result ->> 'failed_by', result ->> 'abandoned_by') END
            """,  # noqa: S608  # constant text
            newest=_NEWEST_ENDS,
            minutes=math.ceil(within_seconds / 60),
            monitor=STOCK_MONITOR,
        )
    return row.ends, row.first_at
