"""Times of observation and availability of workers: what the chart shows under the dead letters.

A quarter of a minute without an observation has no bit set, and is a gap.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.history import events_sql
from dlq_handler.history.event import Topic
from dlq_handler.history.history import (
    QUARTER,
    QUARTERS,
    Change,
    Span,
    Timeline,
    Workers,
    change_of,
    event_of,
    gaps_between,
    timelines_of,
)
from dlq_handler.text import storable
from dlq_handler.workers.availability import Availability

# Advisory lock class. It must never change: replicas of all versions use it.
_LOCK_CLASS = 1_145_852_234

_RECORD_QUARTER = """
    INSERT INTO own.observed_minute (topic, minute, quarters)
    SELECT :topic, date_trunc('minute', quarter), 1 << (CAST(extract(second FROM quarter) AS int) / 15)"""
# No write where the quarter is recorded already: it is recorded several times.
_ADD_QUARTER = """
    ON CONFLICT (topic, minute) DO UPDATE SET quarters = observed_minute.quarters | excluded.quarters
     WHERE observed_minute.quarters & excluded.quarters = 0"""


async def record_consuming(database: Database, *, consuming_seconds: float) -> None:
    """Record the last quarter of a minute if this replica consumed throughout it: no dead letter was missed.

    The quarter before this one: how this one ends is not known yet. `consuming_seconds`: without a break.
    """
    async with database.transaction() as tx:
        await tx.run(
            f"""
            {_RECORD_QUARTER}
              FROM (SELECT clock_timestamp() AS now) AS clock,
                   LATERAL (SELECT date_bin('15 s', now, 'epoch') - interval '15 s' AS quarter) AS last
             WHERE quarter >= now - make_interval(secs => :consuming_seconds)
            {_ADD_QUARTER}
            """,
            topic=Topic.LETTERS.value,
            consuming_seconds=float(consuming_seconds),
        )


async def gaps(database: Database, *, since: datetime, until: datetime) -> list[Span]:
    """Times in which no replica consumed, from the first one in which any ever did."""
    async with database.transaction() as tx:
        return await _gaps(tx, Topic.LETTERS, since=since, until=until)


async def record_workers(
    database: Database, seen: Workers, *, began_at: Mapping[int, datetime] | None = None, replica: str = ""
) -> None:
    """Write and publish the changes since the leader's last observation. A missing worker is no longer registered.

    `began_at`: by worker, since when it has its availability; without it a change is dated now.
    The number of statements does not depend on the size of the fleet. The lock of the events, for which every action
    of an operator waits, is taken last.
    """
    async with database.transaction() as tx:
        # Two replicas that both act as leader write a change once.
        await _lock_worker_changes(tx)
        await _record_workers(tx)
        before = await _last_changes(tx)
        moments = began_at or {}
        changes: list[tuple[int, str, Availability | None]] = []
        events: list[events_sql.NewEvent] = []
        for worker_id, (name, availability) in sorted(seen.items()):
            known = before.get(worker_id)
            became = change_of(known.availability if known else None, availability)
            if became is None:
                continue
            changes.append((worker_id, name, became))
            kind = event_of(known.availability if known else None, became)
            if kind is not None:
                events.append(
                    events_sql.NewEvent(
                        kind=kind, subject=name, detail=str(worker_id), at=moments.get(worker_id)
                    )
                )
        changes += [
            (worker_id, known.name, None)
            for worker_id, known in sorted(before.items())
            if worker_id not in seen and known.availability is not None
        ]
        await _write_changes(tx, changes, moments)
        await events_sql.append_events(tx, events, topic=Topic.WORKERS, replica=replica)


async def record_watching(database: Database) -> None:
    """Record that the workers are observed, and that nothing changed."""
    async with database.transaction() as tx:
        await _record_workers(tx)


async def timelines(database: Database, *, since: datetime, until: datetime) -> list[Timeline]:
    """Of every worker that was registered at some time of the window, by id."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT least(clock_timestamp(), :until) AS end, worker_id, name, at, availability
              FROM own.worker_change c
             WHERE at < :until
               AND (at >= :since
                    OR at = (SELECT max(at) FROM own.worker_change WHERE worker_id = c.worker_id AND at < :since))
             ORDER BY at
            """,
            since=since,
            until=until,
        )
        if not rows:
            return []
        unwatched = await _gaps(tx, Topic.WORKERS, since=since, until=until)
    return timelines_of([_change_of(row) for row in rows], gaps=unwatched, since=since, until=rows[0].end)


async def delete_old(database: Database, *, older_than_seconds: float) -> int:
    """The last change of a registered worker stays: it is the current state."""
    async with database.transaction() as tx:
        minutes = await tx.run(
            "DELETE FROM own.observed_minute WHERE minute < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
        changes = await tx.run(
            """
            DELETE FROM own.worker_change old
             WHERE at < now() - make_interval(secs => :age)
               AND (availability IS NULL
                    OR EXISTS (SELECT FROM own.worker_change newer
                                WHERE newer.worker_id = old.worker_id AND newer.at > old.at
                                  AND newer.at < now() - make_interval(secs => :age)))
            """,
            age=float(older_than_seconds),
        )
    return minutes.rowcount + changes.rowcount


async def last_change(database: Database, worker_id: int) -> Change | None:
    """How a worker was found last, however long ago that was. None: the history has nothing of it."""
    async with database.transaction() as tx:
        row = await tx.row(
            "SELECT worker_id, name, at, availability FROM own.worker_change WHERE worker_id = :id"
            " ORDER BY at DESC LIMIT 1",
            id=worker_id,
        )
    return _change_of(row) if row else None


async def _record_workers(tx: Transaction) -> None:
    """In the quarter that has begun: one observation shows how the workers are."""
    await tx.run(
        f"""
        {_RECORD_QUARTER}
          FROM (SELECT date_bin('15 s', clock_timestamp(), 'epoch') AS quarter) AS clock
         WHERE true
        {_ADD_QUARTER}
        """,
        topic=Topic.WORKERS.value,
    )


async def _gaps(tx: Transaction, topic: Topic, *, since: datetime, until: datetime) -> list[Span]:
    rows = await tx.rows(
        """
        SELECT clock_timestamp() AS now, first.minute AS first, first.quarters AS first_quarters, s.minute, s.quarters
          FROM (VALUES (1)) AS one(row)
          LEFT JOIN LATERAL (SELECT minute, quarters FROM own.observed_minute WHERE topic = :topic
                              ORDER BY minute LIMIT 1) AS first ON true
          LEFT JOIN own.observed_minute s
            ON s.topic = :topic AND s.minute >= date_trunc('minute', CAST(:since AS timestamptz)) AND s.minute < :until
        """,
        topic=topic.value,
        since=since,
        until=until,
    )
    first = rows[0].first
    if first is not None:
        first += next(n for n in range(QUARTERS) if rows[0].first_quarters >> n & 1) * QUARTER
    observed = {row.minute: row.quarters for row in rows if row.minute is not None}
    return gaps_between(observed, first=first, since=since, until=until, now=rows[0].now)


async def _last_changes(tx: Transaction) -> dict[int, Change]:
    rows = await tx.rows(
        """
        SELECT DISTINCT ON (worker_id) worker_id, name, at, availability
          FROM own.worker_change ORDER BY worker_id, at DESC
        """
    )
    return {row.worker_id: _change_of(row) for row in rows}


def _change_of(row: Row[Any]) -> Change:
    return Change(
        worker_id=row.worker_id,
        name=row.name,
        at=row.at,
        availability=None if row.availability is None else Availability(row.availability),
    )


async def _lock_worker_changes(tx: Transaction) -> None:
    """Held until the transaction ends. Only `record_workers` takes this lock."""
    await tx.run(
        "SELECT pg_advisory_xact_lock(:lock_class, hashtext(:name))",
        lock_class=_LOCK_CLASS,
        name=tx.own_schema,
    )


async def _write_changes(
    tx: Transaction,
    changes: Sequence[tuple[int, str, Availability | None]],
    began_at: Mapping[int, datetime],
) -> None:
    """`changes`: worker id, name and new availability, each worker once. Changes of one worker stay in order."""
    if not changes:
        return
    given = {
        "worker_ids": [worker_id for worker_id, _, _ in changes],
        "moments": [None if became is None else began_at.get(worker_id) for worker_id, _, became in changes],
    }
    # The heartbeat has shown since how the worker was in a time that was recorded as unknown.
    await tx.run(
        """
        DELETE FROM own.worker_change old
         USING unnest(CAST(:worker_ids AS bigint[]), CAST(:moments AS timestamptz[])) AS changed(worker_id, at)
         WHERE old.worker_id = changed.worker_id AND old.at >= changed.at AND old.availability = :unknown
        """,
        unknown=Availability.UNKNOWN.value,
        **given,
    )
    await tx.run(
        """
        INSERT INTO own.worker_change (worker_id, at, name, availability)
        SELECT changed.worker_id,
               greatest(least(coalesce(changed.at, clock_timestamp()), clock_timestamp()),
                        last.at + interval '1 microsecond'),
               changed.name, changed.availability
          FROM unnest(CAST(:worker_ids AS bigint[]), CAST(:moments AS timestamptz[]), CAST(:names AS text[]),
                      CAST(:availabilities AS text[])) AS changed(worker_id, at, name, availability)
          LEFT JOIN LATERAL (SELECT max(at) AS at FROM own.worker_change
                              WHERE worker_id = changed.worker_id) AS last ON true
        """,
        names=[storable(name) for _, name, _ in changes],
        availabilities=[None if became is None else became.value for _, _, became in changes],
        **given,
    )
