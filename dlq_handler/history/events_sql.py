"""Events of all replicas in one table: the source of the event stream and of the markers of the chart.

Promises: ids follow the order of commits, so a reader that has seen one has missed none before it. For that a writer
holds a lock until its commit: record events late in a transaction, and never in that of a batch. Bounded: retention
deletes old events by age and by number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.history.event import LETTERS_DECIDED, MARKERS, HistoryEvent
from dlq_handler.text import storable

# Younger events are complete. Older events about decided dead letters are deleted: they are the most, and of no use.
COMPLETE_SECONDS = 3600.0
MOST_KEPT = 100_000
_LONGEST_DETAIL = 500

_COLUMNS = "id, at, topic, kind, subject, detail, replica"

# It must never change: replicas of all versions use it.
_LOCK_CLASS = 1_145_852_233


async def take_turn(tx: Transaction) -> None:
    """Wait for other writers, and hold the lock until the transaction ends."""
    # A lock of the transaction: behind a pooler, a lock of the session would stay with a connection of others.
    await tx.run(
        "SELECT pg_advisory_xact_lock(:lock_class, hashtext(:schema))",
        lock_class=_LOCK_CLASS,
        schema=tx.own_schema,
    )


async def record_event(
    tx: Transaction,
    *,
    topic: str,
    kind: str,
    subject: str | None = None,
    detail: str | None = None,
    replica: str,
    at: datetime | None = None,
    once: bool = False,
) -> None:
    """`at`: the time of the change by the database's clock. None: now.

    `once`: every replica records it, and the first event of this kind and time is kept.
    """
    await take_turn(tx)
    await tx.run(
        """
        INSERT INTO own.history_event (at, topic, kind, subject, detail, replica)
        SELECT given.at, given.topic, given.kind, given.subject, given.detail, given.replica
          FROM (VALUES (coalesce(CAST(:at AS timestamptz), clock_timestamp()), CAST(:topic AS text),
                                    CAST(:kind AS text), CAST(:subject AS text), CAST(:detail AS text),
                                    CAST(:replica AS text))) AS given(at, topic, kind, subject, detail, replica)
         WHERE NOT :once OR NOT EXISTS (SELECT FROM own.history_event known
                                         WHERE known.at = given.at AND known.kind = given.kind)
        """,
        at=at,
        topic=topic,
        kind=kind,
        subject=None if subject is None else storable(subject),
        detail=None if detail is None else storable(detail)[:_LONGEST_DETAIL],
        replica=storable(replica),
        once=once,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """One of many events that one transaction writes together."""

    kind: str
    subject: str
    detail: str
    at: datetime | None
    """None: now."""


async def append_events(tx: Transaction, events: Sequence[NewEvent], *, topic: str, replica: str) -> None:
    """Write many events, in this order, with one statement. Call it last: the lock is held until the commit."""
    if not events:
        return
    await take_turn(tx)
    await tx.run(
        """
        INSERT INTO own.history_event (at, topic, kind, subject, detail, replica)
        SELECT least(coalesce(given.at, clock_timestamp()), clock_timestamp()), :topic, given.kind, given.subject,
               given.detail, :replica
          FROM unnest(CAST(:kinds AS text[]), CAST(:subjects AS text[]), CAST(:details AS text[]),
                      CAST(:moments AS timestamptz[]))
               WITH ORDINALITY AS given(kind, subject, detail, at, place)
         ORDER BY given.place
        """,
        topic=topic,
        replica=storable(replica),
        kinds=[one.kind for one in events],
        subjects=[storable(one.subject) for one in events],
        details=[storable(one.detail)[:_LONGEST_DETAIL] for one in events],
        moments=[one.at for one in events],
    )


async def after(database: Database, event_id: int, *, limit: int = 500) -> list[HistoryEvent]:
    """In order."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            f"SELECT {_COLUMNS} FROM own.history_event WHERE id > :id ORDER BY id LIMIT :limit",  # noqa: S608  # constants
            id=event_id,
            limit=limit,
        )
    return _events(rows)


async def latest_id(database: Database) -> int:
    """0: there is no event."""
    async with database.transaction() as tx:
        [row] = await tx.rows("SELECT coalesce(max(id), 0) AS id FROM own.history_event")
    return int(row.id)


async def oldest_id(database: Database) -> int | None:
    """The first one since which none is missing, or will come to be within minutes; the next one's when there is none.

    None when nothing is on record at all.
    """
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT coalesce((SELECT min(id) FROM own.history_event
                              WHERE at > statement_timestamp() - make_interval(secs => :complete)),
                            (SELECT max(id) + 1 FROM own.history_event)) AS id
            """,
            complete=COMPLETE_SECONDS,
        )
    return None if row.id is None else int(row.id)


async def last_at(tx: Transaction, kind: str) -> datetime | None:
    """The time of the newest event of this kind. None: there is none on record."""
    row = await tx.row("SELECT max(at) AS at FROM own.history_event WHERE kind = :kind", kind=kind)
    return None if row is None else row.at


async def markers(database: Database, *, since: datetime, until: datetime) -> list[HistoryEvent]:
    """The events that the chart marks, in order of time."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            f"""
            SELECT {_COLUMNS} FROM own.history_event
             WHERE at >= :since AND at < :until AND kind = ANY (CAST(:kinds AS text[])) ORDER BY at, id
            """,  # noqa: S608  # constants
            since=since,
            until=until,
            kinds=sorted(MARKERS),
        )
    return _events(rows)


async def delete_old(database: Database, *, older_than_seconds: float) -> int:
    async with database.transaction() as tx:
        result = await tx.run(
            """
            DELETE FROM own.history_event
             WHERE at < now() - make_interval(secs => :age)
                OR (kind = :decided AND at < now() - make_interval(secs => :complete + 300))
                OR id <= (SELECT max(id) FROM own.history_event) - :most
            """,
            age=float(older_than_seconds),
            decided=LETTERS_DECIDED,
            complete=COMPLETE_SECONDS,
            most=MOST_KEPT,
        )
    return result.rowcount


def _events(rows: Sequence[Row[Any]]) -> list[HistoryEvent]:
    return [HistoryEvent(**row._asdict()) for row in rows]
