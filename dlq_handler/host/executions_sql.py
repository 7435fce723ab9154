"""Lock, read and end the host's executions by id, and read what its rows say about workflows.

Rows are locked in the order of their ids everywhere, so that two transactions never wait for each other in a circle.

Only here is decided which execution is a task or a parent of a workflow: Attune writes `workflow_task` as JSON null,
not as SQL NULL, on every ordinary execution, and never writes `workflow_def`. A test for SQL NULL would take every
execution for a workflow task.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.postgres_values import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import Execution, ExecutionStatus, may_become
from dlq_handler.host.messages import Ending

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
    """  # noqa: S608  # constant text
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


async def is_workflow_parent(tx: Transaction) -> str:
    """SQL: the row `e` of execution is the parent of a workflow. It has children, or the workflow has been started, or
    its action is a workflow.
    """
    # By the catalog: a missing table, or one without the right to read it, must not fail the statement.
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

    A retry names its original, or is the same task of the same parent with a higher count. Counts are the host's JSON:
    only whole numbers are compared, because one odd value must not delay all completion events.
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


async def end_executions(tx: Transaction, endings: Sequence[Ending]) -> set[int]:
    """The one statement that changes executions: those that are still as they were read. Returns their ids."""
    changed: set[int] = set()
    for becomes in sorted({ending.becomes for ending in endings}):
        alike = [ending for ending in endings if ending.becomes is becomes]
        changed |= await _end_alike(tx, becomes, sorted(alike, key=lambda ending: ending.execution.id))
    return changed


async def _end_alike(tx: Transaction, becomes: ExecutionStatus, endings: Sequence[Ending]) -> set[int]:
    # The new status is a bare literal, and the old one is compared as text: the name of the enum differs between hosts.
    # The allowed transitions are checked here again, whatever was decided. Changes are counted in the same statement,
    # so no writer can forget the brake, and the count costs no round trip.
    rows = await tx.rows(
        f"""
        WITH ended AS (
            UPDATE execution e SET status = '{becomes.value}', result = CAST(wanted.result AS jsonb)
              FROM unnest(CAST(:ids AS bigint[]), CAST(:statuses AS text[]), CAST(:updated AS timestamptz[]),
                          CAST(:results AS text[]))
                   AS wanted(id, status, updated, result)
             WHERE e.id = wanted.id AND CAST(e.status AS text) = wanted.status AND e.updated = wanted.updated
               AND CAST(e.status AS text) = ANY (CAST(:open AS text[]))
            RETURNING e.id),
        counted AS (
            INSERT INTO own.change_count (at, changed)
            SELECT clock_timestamp(), count(*) FROM ended HAVING count(*) > 0)
        SELECT id FROM ended
        """,  # noqa: S608  # a member of an own enum
        ids=[ending.execution.id for ending in endings],
        statuses=[ending.execution.status.value for ending in endings],
        updated=[ending.execution.updated for ending in endings],
        results=[as_jsonb(ending.result) for ending in endings],
        open=[status.value for status in may_become(becomes)],
    )
    return {row.id for row in rows}
