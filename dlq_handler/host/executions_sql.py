"""Lock or read the host's executions by id, with the database's time.

Rows are locked in the order of their ids everywhere, so that two transactions never wait for each other in a circle.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.workflow_tasks_sql import IS_WORKFLOW_TASK

EXECUTION_COLUMNS = f"""
    e.id, CAST(e.status AS text) AS status, e.updated, e.worker, e.action, e.action_ref,
    {IS_WORKFLOW_TASK} AS is_workflow_task
"""
PAGE_COLUMNS = "e.id, e.status, e.updated, e.worker, e.action, e.action_ref, e.workflow_task"
"""What `EXECUTION_COLUMNS` reads, for a subquery that bounds a page."""
_STATUSES = {status.value: status for status in ExecutionStatus}


def execution_of(row: Row[Any]) -> Execution:
    """From a row with `EXECUTION_COLUMNS`. Raises KeyError for a status that this version does not know."""
    return Execution(
        id=row.id,
        status=_STATUSES[row.status],
        updated=row.updated,
        worker_id=row.worker,
        action_id=row.action,
        action_ref=row.action_ref,
        is_workflow_task=row.is_workflow_task,
    )


async def has_admission(tx: Transaction) -> bool:
    """The host has the admission tables, and dlq-handler may read them. If not, no execution waits for a slot."""
    # has_table_privilege of a missing table is NULL, not an error.
    row = await tx.row(
        "SELECT coalesce(has_table_privilege(to_regclass('execution_admission_entry'), 'SELECT'), false) AS may_read"
    )
    return row is not None and bool(row.may_read)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedView:
    """The executions of a batch, locked until the transaction ends, or why they are not."""

    executions: Mapping[int, Execution]
    locked_elsewhere: frozenset[int]
    """They exist, but another transaction holds their locks: postpone them."""
    unfamiliar: Mapping[int, str]
    """In a status that this version does not know: never to be written over."""
    now: datetime
    """The database's clock."""


async def rehearse(tx: Transaction, *, is_shadow: bool = False) -> None:
    """Change nothing, with every right that a batch needs on the host's tables: a missing one shows before dead letters
    are received.
    """
    await tx.run("SELECT id FROM worker WHERE false")
    if not is_shadow:
        await tx.run("UPDATE execution SET status = status, result = result WHERE false")


# The plain read of the same ids distinguishes a row that is locked elsewhere from one that does not exist. Taken for
# missing, the dead letter of a live execution would be recorded as unknown.
_LOCK = f"""
    WITH locked AS MATERIALIZED (
        SELECT {EXECUTION_COLUMNS}
          FROM execution e WHERE e.id = ANY (CAST(:ids AS bigint[]))
         ORDER BY e.id FOR NO KEY UPDATE SKIP LOCKED)
    SELECT clock_timestamp() AS now, present.id, locked.status, locked.updated, locked.worker,
           locked.action, locked.action_ref, locked.is_workflow_task
      FROM (VALUES (1)) AS one(row)
      LEFT JOIN execution present ON present.id = ANY (CAST(:ids AS bigint[]))
      LEFT JOIN locked ON locked.id = present.id
    """  # noqa: S608  # our own text throughout
_READ = _LOCK.replace("FOR NO KEY UPDATE SKIP LOCKED", "")


async def lock_executions(tx: Transaction, ids: Iterable[int]) -> LockedView:
    return await _view(tx, _LOCK, ids)


async def read_executions(tx: Transaction, ids: Iterable[int]) -> LockedView:
    """Without locks: for a caller that changes nothing. Needs only the right to read."""
    return await _view(tx, _READ, ids)


async def _view(tx: Transaction, sql: str, ids: Iterable[int]) -> LockedView:
    rows = await tx.rows(sql, ids=sorted(set(ids)))
    executions: dict[int, Execution] = {}
    unfamiliar: dict[int, str] = {}
    locked_elsewhere = set()
    for row in rows:
        if row.id is None:
            continue
        if row.status is None:
            locked_elsewhere.add(row.id)
        elif row.status not in _STATUSES:
            unfamiliar[row.id] = row.status
        else:
            executions[row.id] = execution_of(row)
    return LockedView(
        executions=executions,
        locked_elsewhere=frozenset(locked_elsewhere),
        unfamiliar=unfamiliar,
        now=rows[0].now,
    )
