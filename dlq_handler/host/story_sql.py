"""One execution and its history as the host has them, for people who ask what happened to it."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import TERMINAL
from dlq_handler.masking import masked_text

_HISTORY_COLUMNS = ("time", "operation", "entity_id", "old_values", "new_values")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFacts:
    """The host's row as it is now."""

    id: int
    status: str
    """In the host's words: a newer host may have statuses that dlq-handler does not know."""
    is_terminal: bool
    action_ref: str
    created: datetime
    updated: datetime
    started_at: datetime | None = None
    worker_id: int | None = None
    parent_id: int | None = None
    retry_of: int | None = None
    error: str | None = None
    """Of its result, masked."""
    ended_by: str | None = None
    """The component that signed its result: failed_by, abandoned_by or cancelled_by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of status or worker, from the host's own history."""

    at: datetime
    before: str | None
    """None: the row was created."""
    after: str
    worker_id: int | None = None
    """Given when the worker changed too."""


async def read_facts(tx: Transaction, execution_id: int) -> tuple[ExecutionFacts | None, datetime]:
    """With the time by the database's clock. None: the host has no such row."""
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
    assert row is not None  # noqa: S101  # the row of VALUES is always there
    fields = row._asdict()
    now = fields.pop("now")
    if row.id is None:
        return None, now
    fields["error"] = None if row.error is None else masked_text(row.error)
    return ExecutionFacts(**fields, is_terminal=row.status in {status.value for status in TERMINAL}), now


async def read_transitions(tx: Transaction, execution_id: int) -> list[Transition] | None:
    """None: the host keeps no history in the known form, or dlq-handler has no right to read it."""
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
