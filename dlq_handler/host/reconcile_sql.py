"""Find ends without a completion event, and executions that came back after their end. Read only, in pages."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.postgres_values import age_seconds
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.ends import HANDLER_ERROR, EndWithoutEvent, OwnEnd
from dlq_handler.host.execution import TERMINAL, ExecutionStatus, Page, Place
from dlq_handler.host.executions_sql import (
    EXECUTION_COLUMNS,
    IS_WORKFLOW_TASK,
    PAGE_COLUMNS,
    execution_of,
    has_admission,
)

_TERMINAL = (
    "CAST(e.status AS text) IN (" + ", ".join(f"'{status.value}'" for status in sorted(TERMINAL)) + ")"
)

# The consumer of the event reads the row. A result of megabytes, as a worker may write it, would fill the outbox.
RESULT = "CASE WHEN pg_column_size(e.result) <= 8192 THEN CAST(e.result AS text) END AS result"

# Not while an older event of it is still to be published. With LIMIT 1, as EXISTS may be planned as a join of
# everything.
_PUBLISHED = """
    SELECT true FROM own.stale_decision published
     WHERE published.execution_id = e.id AND published.outcome = 'completion_published'
"""
_UNPUBLISHED = "SELECT true FROM own.outbox open WHERE open.execution_id = e.id AND open.confirmed_at IS NULL"

# Once, whatever becomes of the row: deleting a worker moves the `updated` of all that it ever had.
IS_END_PUBLISHED = f"""
    coalesce(({_PUBLISHED} AND published.is_shadow = :is_shadow LIMIT 1), ({_UNPUBLISHED} LIMIT 1), false)
"""

# Once for each state of a row: its slot is free, unless the executor lost the event. To lose one is rare, and a row may
# change every minute, so another event is published only when the last is long past.
_IS_SLOT_PUBLISHED = f"""
    coalesce(({_PUBLISHED} AND published.is_shadow = :is_shadow
               AND (published.attempt_updated_at = e.updated
                    OR published.decided_at > statement_timestamp() - make_interval(secs => :again_after)) LIMIT 1),
             ({_UNPUBLISHED} LIMIT 1), false)
"""


async def held_slots(
    tx: Transaction, *, held_seconds: float, again_after_seconds: float, limit: int, is_shadow: bool
) -> list[EndWithoutEvent]:
    """Slots of executions that ended that long ago. An end that was published is not found again, unless the row has
    moved since and `again_after_seconds` have passed.

    A workflow task is left out: a second event can make a second retry of it. The table of slots is as small as the
    work in progress, so it is simply read.
    """
    if not await has_admission(tx):
        return []
    rows = await tx.rows(
        f"""
        SELECT {EXECUTION_COLUMNS}, {RESULT}, slot.activated_at
          FROM execution_admission_entry slot JOIN execution e ON e.id = slot.execution_id
         WHERE slot.status = 'active' AND {_TERMINAL} AND NOT {IS_WORKFLOW_TASK}
           AND coalesce(slot.activated_at, slot.created) <= statement_timestamp() - make_interval(secs => :held)
           AND e.updated <= statement_timestamp() - make_interval(secs => :held) AND NOT {_IS_SLOT_PUBLISHED}
         ORDER BY slot.id LIMIT :limit
        """,  # noqa: S608  # constant text
        held=float(held_seconds),
        again_after=float(again_after_seconds),
        limit=limit,
        is_shadow=is_shadow,
    )
    return [
        end_without_event(row, {"slot_taken_at": row.activated_at and row.activated_at.isoformat()})
        for row in rows
    ]


async def count_leaked_slots(database: Database, *, held_seconds: float) -> int | None:
    """Slots of executions that ended that long ago, whether their ends were published or not. A host without slots
    leaks none; None: dlq-handler may not read them.
    """
    async with database.transaction() as tx:
        if not await has_admission(tx):
            absent = await tx.row("SELECT to_regclass('execution_admission_entry') IS NULL AS is_so")
            return 0 if absent is not None and absent.is_so else None
        row = await tx.row(
            f"""
            SELECT count(*) AS slots
              FROM execution_admission_entry slot JOIN execution e ON e.id = slot.execution_id
             WHERE slot.status = 'active' AND {_TERMINAL}
               AND coalesce(slot.activated_at, slot.created) <= statement_timestamp() - make_interval(secs => :held)
               AND e.updated <= statement_timestamp() - make_interval(secs => :held)
            """,  # noqa: S608  # constant text
            held=float(held_seconds),
        )
    return row.slots if row is not None else None


async def ends_without_event(
    tx: Transaction, after: Place, *, until: datetime, limit: int, is_shadow: bool
) -> Page[EndWithoutEvent, Place]:
    """Walk the failed executions along the host's (status, updated) index."""
    rows = await tx.rows(
        f"""
        SELECT {EXECUTION_COLUMNS}, {RESULT}, left(e.result ->> 'expired_at', 64) AS expired_at,
               e.result ->> 'error' = :error AND e.result ->> 'failed_by' IS NULL AND NOT {IS_END_PUBLISHED}
                   AS is_without_event
          FROM execution e
         WHERE e.status = 'failed' AND e.updated <= :until
           AND (e.updated, e.id) > (:after_updated, :after_id)
         ORDER BY e.updated, e.id LIMIT :limit
        """,  # noqa: S608  # constant text
        error=HANDLER_ERROR,
        until=until,
        after_updated=after[0],
        after_id=after[1],
        limit=limit,
        is_shadow=is_shadow,
    )
    return Page(
        found=[
            end_without_event(row, {"expired_at": row.expired_at}) for row in rows if row.is_without_event
        ],
        last=(rows[-1].updated, rows[-1].id) if len(rows) == limit else None,
    )


async def own_ends(
    tx: Transaction,
    after: Place,
    *,
    status: ExecutionStatus,
    until: datetime,
    limit: int,
    outcomes: Collection[str],
) -> Page[OwnEnd, Place]:
    """Walk the executions of one status, for those that dlq-handler had ended before and that moved since.
    `outcomes`: the decisions of the monitor that count as such an end.

    Along the host's (status, updated) index, and from there to own records by key. The other way round, from the
    records, a flood of a million dead letters would be read again at every scan, for as long as they are kept.
    """
    # A terminal row that has not moved is as it was left. The transaction that wrote a running row may have begun
    # before dlq-handler's, and have waited for it.
    moved = "AND e.updated > {at}" if status.is_terminal else ""
    rows = await tx.rows(
        f"""
        SELECT {EXECUTION_COLUMNS}, own_end.at, own_end.ended_by, own_end.replica,
               -- Only of those found: a result may have megabytes.
               CASE WHEN own_end.at IS NOT NULL THEN
                 coalesce(e.result ->> 'failed_by', e.result ->> 'abandoned_by', e.result ->> 'cancelled_by')
               END AS signature,
               CASE WHEN own_end.at IS NOT NULL THEN
                 (SELECT {age_seconds("last_heartbeat")}
                    FROM worker WHERE worker.id = e.worker)
               END AS heartbeat_age
          FROM (SELECT {PAGE_COLUMNS}, e.result FROM execution e
                 WHERE e.status = '{status.value}' AND e.updated <= :until
                   AND (e.updated, e.id) > (:after_updated, :after_id)
                 ORDER BY e.updated, e.id LIMIT :limit) AS e
          LEFT JOIN LATERAL (
            SELECT decided_at AS at, 'letter ' || letter.id AS ended_by, replica FROM own.letter
             WHERE execution_id = e.id AND outcome = 'failed' AND NOT is_shadow {moved.format(at="decided_at")}
            UNION ALL
            SELECT decided_at, 'the monitor', replica FROM own.stale_decision
             WHERE execution_id = e.id AND outcome = ANY (CAST(:outcomes AS text[])) AND NOT is_shadow
                   {moved.format(at="decided_at")}
          ) AS own_end ON true
         ORDER BY e.updated, e.id
        """,  # noqa: S608  # constant text, and a member of an own enum
        until=until,
        after_updated=after[0],
        after_id=after[1],
        limit=limit,
        outcomes=list(outcomes),
    )
    return Page(
        found=[_own_end(row) for row in rows if row.at is not None],
        # Of one execution there may be several.
        last=(rows[-1].updated, rows[-1].id) if len({row.id for row in rows}) == limit else None,
    )


def end_without_event(row: Row[Any], evidence: Mapping[str, object]) -> EndWithoutEvent:
    return EndWithoutEvent(
        execution=execution_of(row),
        result=None if row.result is None else json.loads(row.result),
        evidence=evidence,
    )


def _own_end(row: Row[Any]) -> OwnEnd:
    return OwnEnd(
        ended_at=row.at,
        ended_by=row.ended_by,
        replica=row.replica,
        execution=execution_of(row),
        signature=row.signature,
        heartbeat_age_seconds=row.heartbeat_age,
    )
