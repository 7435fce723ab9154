"""Find ends that somebody does not know of, and executions that came back after we ended them. Read only, in pages.

Each page is bounded by what is looked at, not by what is found: a statement that reads on until it has found enough
would read a whole table on a day when all is well.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.domain.execution import TERMINAL
from dlq_handler.domain.reconcile import SILENT_ERROR, EndOfOurs, Finding, UnheardEnd
from dlq_handler.store.admission import has_admission
from dlq_handler.store.engine import Database
from dlq_handler.store.execution_rows import EXECUTION_COLUMNS, execution_of
from dlq_handler.store.transaction import Transaction
from dlq_handler.store.unscheduled import Place

_TERMINAL = (
    "CAST(e.status AS text) IN (" + ", ".join(f"'{status.value}'" for status in sorted(TERMINAL)) + ")"
)

# Whoever hears of an end reads the row. A result of megabytes, as a worker may write it, would fill the outbox.
_RESULT = "CASE WHEN pg_column_size(e.result) <= 8192 THEN CAST(e.result AS text) END AS result"

# Not while an older notice of it is still to be published. With LIMIT 1, as EXISTS may be planned as a join of
# everything.
_TOLD = (
    "SELECT true FROM own.stale_verdict told WHERE told.execution_id = e.id AND told.outcome = 'announced'"
)
_UNPUBLISHED = "SELECT true FROM own.outbox open WHERE open.execution_id = e.id AND open.confirmed_at IS NULL"

# Once, whatever becomes of the row: deleting a worker moves the `updated` of all that it ever had.
_IS_END_TOLD = f"""
    coalesce(({_TOLD} AND told.is_shadow = :is_shadow LIMIT 1), ({_UNPUBLISHED} LIMIT 1), false)
"""

# Once for each state of a row: its slot is free, unless the listener lost the notice. To lose one is rare, and a row
# may be touched every minute, so another one goes out only when the last is long past.
_IS_SLOT_TOLD = f"""
    coalesce(({_TOLD} AND told.is_shadow = :is_shadow
               AND (told.attempt = e.updated
                    OR told.decided_at > statement_timestamp() - make_interval(secs => :again_after)) LIMIT 1),
             ({_UNPUBLISHED} LIMIT 1), false)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentPage:
    ends: Sequence[UnheardEnd]
    last: Place | None
    """Where the next page goes on; None: there is no next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsPage:
    ends: Sequence[EndOfOurs]
    last_id: int | None
    """Where the next page goes on; None: there is no next."""


async def clock(tx: Transaction) -> datetime:
    """The database's."""
    row = await tx.row("SELECT clock_timestamp() AS now")
    assert row is not None  # noqa: S101  # it has no FROM
    now: datetime = row.now
    return now


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
        SELECT {EXECUTION_COLUMNS}, {_RESULT}, slot.activated_at
          FROM execution_admission_entry slot JOIN execution e ON e.id = slot.execution_id
         WHERE slot.status = 'active' AND {_TERMINAL} AND e.workflow_task IS NULL
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
        _unheard(row, Finding.HELD_SLOT, {"slot_taken_at": row.activated_at and row.activated_at.isoformat()})
        for row in rows
    ]


async def silent_ends(
    tx: Transaction, *, after: Place, until: datetime, limit: int, is_shadow: bool
) -> SilentPage:
    """Walk the failed executions along the host's (status, updated) index."""
    rows = await tx.rows(
        f"""
        SELECT {EXECUTION_COLUMNS}, {_RESULT}, left(e.result ->> 'expired_at', 64) AS expired_at,
               e.result ->> 'error' = :error AND e.result ->> 'failed_by' IS NULL AND NOT {_IS_END_TOLD} AS is_silent
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
    return SilentPage(
        ends=[
            _unheard(row, Finding.SILENT_END, {"expired_at": row.expired_at}) for row in rows if row.is_silent
        ],
        last=(rows[-1].updated, rows[-1].id) if len(rows) == limit else None,
    )


async def ends_by_letters(tx: Transaction, *, after_id: int, limit: int) -> EndsPage:
    """What letters ended, where somebody may have gone on with the execution since."""
    return await _ends(
        tx,
        """
        SELECT id, execution_id, judged_at AS at, instance, 'letter ' || id AS ended_by
          FROM own.letter WHERE id > :after_id AND outcome = 'failed' AND NOT is_shadow
        """,
        after_id,
        limit,
    )


async def ends_by_monitor(tx: Transaction, *, after_id: int, limit: int) -> EndsPage:
    """The same for what the monitor ended."""
    return await _ends(
        tx,
        """
        SELECT id, execution_id, decided_at AS at, instance, 'the monitor' AS ended_by
          FROM own.stale_verdict WHERE id > :after_id AND outcome IN ('failed', 'abandoned') AND NOT is_shadow
        """,
        after_id,
        limit,
    )


async def resurrected_by_worker(database: Database) -> dict[int, int]:
    """How many executions that we had ended each worker brought back, as far as records go."""
    async with database.transaction() as tx:
        ours = await tx.row("SELECT to_regclass('own.stale_verdict') IS NOT NULL AS is_there")
        if ours is None or not ours.is_there:
            # Whoever lists workers before our first start has nothing to be told yet.
            return {}
        rows = await tx.rows(
            """
            SELECT worker_id, count(*) AS executions FROM own.stale_verdict
             WHERE outcome = 'resurrected' AND worker_id IS NOT NULL GROUP BY worker_id
            """
        )
    return {row.worker_id: row.executions for row in rows}


async def _ends(tx: Transaction, ours: str, after_id: int, limit: int) -> EndsPage:
    rows = await tx.rows(
        f"""
        WITH page AS MATERIALIZED ({ours} ORDER BY id LIMIT :limit)
        SELECT whole.last_id, whole.ends, found.*
          FROM (SELECT max(id) AS last_id, count(*) AS ends FROM page) AS whole
          LEFT JOIN LATERAL (
            SELECT page.at, page.ended_by, page.instance, row.*
              FROM page CROSS JOIN LATERAL (
                -- LIMIT keeps it a look by key: as a plain join it may be planned as a scan of all executions.
                SELECT {EXECUTION_COLUMNS},
                       coalesce(e.result ->> 'failed_by', e.result ->> 'abandoned_by', e.result ->> 'cancelled_by')
                           AS signature,
                       (SELECT CAST(extract(epoch FROM clock_timestamp() - last_heartbeat) AS double precision)
                          FROM worker WHERE worker.id = e.worker) AS heartbeat_age
                  FROM execution e
                 WHERE e.id = page.execution_id
                   AND (CAST(e.status AS text) IN ('running', 'canceling') OR ({_TERMINAL} AND e.updated > page.at))
                 LIMIT 1) AS row
          ) AS found ON true
        """,  # noqa: S608  # our own text throughout
        after_id=after_id,
        limit=limit,
    )
    return EndsPage(
        ends=[_end_of_ours(row) for row in rows if row.id is not None],
        last_id=rows[0].last_id if rows[0].ends == limit else None,
    )


def _unheard(row: Row[Any], finding: Finding, evidence: Mapping[str, object]) -> UnheardEnd:
    return UnheardEnd(
        finding=finding,
        execution=execution_of(row),
        result=None if row.result is None else json.loads(row.result),
        evidence=evidence,
    )


def _end_of_ours(row: Row[Any]) -> EndOfOurs:
    return EndOfOurs(
        ended_at=row.at,
        ended_by=row.ended_by,
        instance=row.instance,
        execution=execution_of(row),
        signature=row.signature,
        heartbeat_age_seconds=row.heartbeat_age,
    )
