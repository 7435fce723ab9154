"""Find ends that somebody does not know of, and executions that came back after we ended them. Read only, in pages.

Each page is bounded by what is looked at, not by what is found: a statement that reads on until it has found enough
would read a whole table on a day when all is well.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.moments import age_seconds
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.ends import SILENT_ERROR, EndOfOurs, UnheardEnd
from dlq_handler.host.execution import TERMINAL, ExecutionStatus
from dlq_handler.host.executions_sql import EXECUTION_COLUMNS, execution_of, has_admission
from dlq_handler.host.unscheduled_sql import Place
from dlq_handler.host.workflow_tasks_sql import IS_WORKFLOW_TASK

Found = TypeVar("Found")

_TERMINAL = (
    "CAST(e.status AS text) IN (" + ", ".join(f"'{status.value}'" for status in sorted(TERMINAL)) + ")"
)

# Whoever hears of an end reads the row. A result of megabytes, as a worker may write it, would fill the outbox.
RESULT = "CASE WHEN pg_column_size(e.result) <= 8192 THEN CAST(e.result AS text) END AS result"

# Not while an older notice of it is still to be published. With LIMIT 1, as EXISTS may be planned as a join of
# everything.
_TOLD = (
    "SELECT true FROM own.stale_decision told"
    " WHERE told.execution_id = e.id AND told.outcome = 'completion_published'"
)
_UNPUBLISHED = "SELECT true FROM own.outbox open WHERE open.execution_id = e.id AND open.confirmed_at IS NULL"

# Once, whatever becomes of the row: deleting a worker moves the `updated` of all that it ever had.
IS_END_TOLD = f"""
    coalesce(({_TOLD} AND told.is_shadow = :is_shadow LIMIT 1), ({_UNPUBLISHED} LIMIT 1), false)
"""

# Once for each state of a row: its slot is free, unless the listener lost the notice. To lose one is rare, and a row
# may be touched every minute, so another one goes out only when the last is long past.
_IS_SLOT_TOLD = f"""
    coalesce(({_TOLD} AND told.is_shadow = :is_shadow
               AND (told.attempt_updated_at = e.updated
                    OR told.decided_at > statement_timestamp() - make_interval(secs => :again_after)) LIMIT 1),
             ({_UNPUBLISHED} LIMIT 1), false)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Found]):
    ends: Sequence[Found]
    last: Place | None
    """Where the next page goes on; None: there is no next."""


async def held_slots(
    tx: Transaction, *, held_seconds: float, again_after_seconds: float, limit: int, is_shadow: bool
) -> list[UnheardEnd]:
    """Slots that executions hold which have ended that long ago. Those told of are not found again, unless the row has
    moved since, and so much time has passed.

    A workflow task is left out: for it a second notice can make a second retry. A table of slots is as small as what is
    under way, so it is simply read.
    """
    if not await has_admission(tx):
        return []
    rows = await tx.rows(
        f"""
        SELECT {EXECUTION_COLUMNS}, {RESULT}, slot.activated_at
          FROM execution_admission_entry slot JOIN execution e ON e.id = slot.execution_id
         WHERE slot.status = 'active' AND {_TERMINAL} AND NOT {IS_WORKFLOW_TASK}
           AND coalesce(slot.activated_at, slot.created) <= statement_timestamp() - make_interval(secs => :held)
           AND e.updated <= statement_timestamp() - make_interval(secs => :held) AND NOT {_IS_SLOT_TOLD}
         ORDER BY slot.id LIMIT :limit
        """,  # noqa: S608  # our own text throughout
        held=float(held_seconds),
        again_after=float(again_after_seconds),
        limit=limit,
        is_shadow=is_shadow,
    )
    return [
        unheard(row, {"slot_taken_at": row.activated_at and row.activated_at.isoformat()}) for row in rows
    ]


async def count_leaked_slots(database: Database, *, held_seconds: float) -> int | None:
    """Slots that executions hold which have ended that long ago, told of or not. A host without slots leaks none; None:
    it has some, and we may not read them.
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
            """,  # noqa: S608  # our own text throughout
            held=float(held_seconds),
        )
    return row.slots if row is not None else None


async def silent_ends(
    tx: Transaction, *, after: Place, until: datetime, limit: int, is_shadow: bool
) -> Page[UnheardEnd]:
    """Walk the failed executions along the host's (status, updated) index."""
    rows = await tx.rows(
        f"""
        SELECT {EXECUTION_COLUMNS}, {RESULT}, left(e.result ->> 'expired_at', 64) AS expired_at,
               e.result ->> 'error' = :error AND e.result ->> 'failed_by' IS NULL AND NOT {IS_END_TOLD} AS is_silent
          FROM execution e
         WHERE e.status = 'failed' AND e.updated <= :until
           AND (e.updated, e.id) > (:after_updated, :after_id)
         ORDER BY e.updated, e.id LIMIT :limit
        """,  # noqa: S608  # our own text throughout
        error=SILENT_ERROR,
        until=until,
        after_updated=after[0],
        after_id=after[1],
        limit=limit,
        is_shadow=is_shadow,
    )
    return Page(
        ends=[unheard(row, {"expired_at": row.expired_at}) for row in rows if row.is_silent],
        last=(rows[-1].updated, rows[-1].id) if len(rows) == limit else None,
    )


async def ends_of_ours(
    tx: Transaction, status: ExecutionStatus, *, after: Place, until: datetime, limit: int
) -> Page[EndOfOurs]:
    """Walk the executions of one status, for those that we had ended before and that moved since.

    Along the host's (status, updated) index, and from there to our records by key. The other way round, from the
    records, a flood of a million letters would be looked up again at every look, for as long as they are kept.
    """
    # One that has not moved since is as we left it. One that runs may have begun before we wrote, and waited for us.
    moved = "AND e.updated > {at}" if status.is_terminal else ""
    rows = await tx.rows(
        f"""
        SELECT {EXECUTION_COLUMNS}, ours.*,
               -- Only of those found: a result may have megabytes.
               CASE WHEN ours.at IS NOT NULL THEN
                 coalesce(e.result ->> 'failed_by', e.result ->> 'abandoned_by', e.result ->> 'cancelled_by')
               END AS signature,
               CASE WHEN ours.at IS NOT NULL THEN
                 (SELECT {age_seconds("last_heartbeat")}
                    FROM worker WHERE worker.id = e.worker)
               END AS heartbeat_age
          FROM (SELECT * FROM execution e
                 WHERE e.status = '{status.value}' AND e.updated <= :until
                   AND (e.updated, e.id) > (:after_updated, :after_id)
                 ORDER BY e.updated, e.id LIMIT :limit) AS e
          LEFT JOIN LATERAL (
            SELECT decided_at AS at, 'letter ' || letter.id AS ended_by, replica FROM own.letter
             WHERE execution_id = e.id AND outcome = 'failed' AND NOT is_shadow {moved.format(at="decided_at")}
            UNION ALL
            SELECT decided_at, 'the monitor', replica FROM own.stale_decision
             WHERE execution_id = e.id AND outcome IN ('failed', 'abandoned') AND NOT is_shadow
                   {moved.format(at="decided_at")}
          ) AS ours ON true
         ORDER BY e.updated, e.id
        """,  # noqa: S608  # our own text throughout, and a member of our own enum
        until=until,
        after_updated=after[0],
        after_id=after[1],
        limit=limit,
    )
    return Page(
        ends=[_end_of_ours(row) for row in rows if row.at is not None],
        # Of one execution there may be several.
        last=(rows[-1].updated, rows[-1].id) if len({row.id for row in rows}) == limit else None,
    )


def unheard(row: Row[Any], evidence: Mapping[str, object]) -> UnheardEnd:
    return UnheardEnd(
        execution=execution_of(row),
        result=None if row.result is None else json.loads(row.result),
        evidence=evidence,
    )


def _end_of_ours(row: Row[Any]) -> EndOfOurs:
    return EndOfOurs(
        ended_at=row.at,
        ended_by=row.ended_by,
        replica=row.replica,
        execution=execution_of(row),
        signature=row.signature,
        heartbeat_age_seconds=row.heartbeat_age,
    )
