"""Dead letters counted by group and by minute, in the transaction that records them.

Promises: the cost does not grow with the number of dead letters. Groups are locked in the order of their ids, after
every other row of a batch (lock order: endings/ender.py). Dead letters of shadow mode are not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.postgres_values import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import (
    ACTIONS_KEPT,
    ACTIONS_SHOWN,
    Category,
    Group,
    GroupCount,
    GroupKey,
    MinuteCount,
    group_key_of,
)
from dlq_handler.dead_letters.record import Entry
from dlq_handler.host.names import REQUESTED_KEY
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.text import storable

STOCK_NAMES = WorkerQueueNames()
_GROUP = """
    g.id, g.category, g.reason, g.queue, g.detail, g.worker_id, g.first_at, g.last_at, g.letters, g.failed, g.actions"""
REJECTED_REQUEST = f"routing_key = '{REQUESTED_KEY}' AND reason = 'rejected' AND NOT is_shadow"
"""As in the index of rejected requests."""


@dataclass(slots=True)
class _Tally:
    letters: int = 0
    failed: int = 0
    # A dict for its order: the first actions are shown.
    actions: dict[str, None] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        self.letters += 1
        self.failed += entry.outcome is Outcome.FAILED
        action = entry.letter.action_ref
        if action is not None and len(self.actions) < ACTIONS_KEPT:
            self.actions[action] = None


def _tallies(entries: Sequence[Entry]) -> list[tuple[GroupKey, _Tally]]:
    tallies: dict[GroupKey, _Tally] = {}
    for entry in entries:
        tallies.setdefault(group_key_of(entry), _Tally()).add(entry)
    return sorted(tallies.items(), key=lambda one: one[0].id)


async def count_letters(
    tx: Transaction, entries: Sequence[Entry], *, names: WorkerQueueNames = STOCK_NAMES
) -> None:
    """Count entries that this transaction has recorded, and no others: older records are counted already."""
    tallies = _tallies(entries)
    if not tallies:
        return
    # now() is also `received_at` of the records, so that counts and records agree on the minute. The minutes are
    # written from the rows that the upsert of the groups returns: the lock of a group covers its minutes.
    await tx.run(
        """
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest(
                CAST(:ids AS text[]), CAST(:categories AS text[]), CAST(:reasons AS text[]), CAST(:queues AS text[]),
                CAST(:details AS text[]), CAST(:workers AS bigint[]), CAST(:letters AS bigint[]),
                CAST(:failed AS bigint[]), CAST(:actions AS jsonb[]))
              AS given(id, category, reason, queue, detail, worker_id, letters, failed, actions)),
        grouped AS (
            INSERT INTO own.letter_group AS known
                   (id, category, reason, queue, detail, worker_id, first_at, last_at, letters, failed, actions)
            SELECT id, category, reason, queue, detail, worker_id, now(), now(), letters, failed,
                   ARRAY(SELECT jsonb_array_elements_text(given.actions -> 'actions'))
              FROM given ORDER BY id
            ON CONFLICT (id) DO UPDATE
               SET last_at = greatest(known.last_at, excluded.last_at),
                   letters = known.letters + excluded.letters, failed = known.failed + excluded.failed,
                   actions = CASE
                       WHEN known.actions @> excluded.actions OR cardinality(known.actions) >= :kept
                       THEN known.actions
                       ELSE ARRAY(SELECT action FROM unnest(known.actions || excluded.actions)
                                    WITH ORDINALITY AS listed(action, place)
                                   GROUP BY action ORDER BY min(place) LIMIT :kept) END
            RETURNING known.id)
        INSERT INTO own.letter_minute AS known (minute, group_id, letters, failed, last_at, last_id)
        SELECT date_trunc('minute', now()), given.id, given.letters, given.failed, now(), currval('own.letter_id_seq')
          FROM grouped JOIN given ON given.id = grouped.id
        ON CONFLICT (minute, group_id) DO UPDATE
           SET letters = known.letters + excluded.letters, failed = known.failed + excluded.failed,
               last_at = greatest(known.last_at, excluded.last_at),
               last_id = greatest(known.last_id, excluded.last_id)
        """,
        ids=[key.id for key, _ in tallies],
        categories=[key.category.value for key, _ in tallies],
        reasons=[storable(key.reason) for key, _ in tallies],
        queues=[None if key.queue is None else storable(key.queue) for key, _ in tallies],
        details=[None if key.detail is None else storable(key.detail) for key, _ in tallies],
        workers=[names.owner_of(key.queue) if key.queue else None for key, _ in tallies],
        letters=[tally.letters for _, tally in tallies],
        failed=[tally.failed for _, tally in tallies],
        actions=[as_jsonb({"actions": list(tally.actions)}) for _, tally in tallies],
        kept=ACTIONS_KEPT,
    )


async def count_arrivals(
    tx: Transaction, recorded: Sequence[Entry], repeats: Mapping[str, int], *, names: WorkerQueueNames
) -> None:
    """`recorded`: entries that this transaction has recorded. `repeats`: arrivals by key of those on record before."""
    has_requests = bool(repeats) and await _lock_groups(tx, repeats, recorded)
    await count_letters(tx, recorded, names=names)
    if has_requests:
        await _count_repeats(tx, repeats)


async def _lock_groups(tx: Transaction, repeats: Mapping[str, int], entries: Sequence[Entry]) -> bool:
    """Lock all groups that `count_letters` and `_count_repeats` change, in one order. Returns False when none
    of the repeats is a rejected request.
    """
    rows = await tx.rows(
        f"""
        WITH repeated AS MATERIALIZED (
            SELECT DISTINCT group_id FROM own.letter WHERE key = ANY (CAST(:keys AS text[])) AND {REJECTED_REQUEST})
        SELECT id FROM own.letter_group
         WHERE EXISTS (SELECT FROM repeated)
           AND (id IN (SELECT group_id FROM repeated) OR id = ANY (CAST(:ids AS text[])))
         ORDER BY id FOR NO KEY UPDATE
        """,  # noqa: S608  # constant text
        keys=list(repeats),
        ids=sorted({group_key_of(entry).id for entry in entries}),
    )
    return bool(rows)


async def _count_repeats(tx: Transaction, repeats: Mapping[str, int]) -> None:
    """Count requests that were rejected again: each execution has one record, and a rejection may go on for days.

    `repeats`: arrivals by key. Other repeats are deliveries of the same message, and are not counted.
    """
    await tx.run(
        f"""
        WITH repeated AS MATERIALIZED (
            SELECT l.group_id AS id, sum(given.arrivals) AS letters
              FROM own.letter l
              JOIN unnest(CAST(:keys AS text[]), CAST(:arrivals AS integer[])) AS given(key, arrivals)
                ON given.key = l.key
             WHERE {REJECTED_REQUEST}
             GROUP BY l.group_id),
        grouped AS (
            UPDATE own.letter_group g SET last_at = greatest(g.last_at, now()), letters = g.letters + repeated.letters
              FROM repeated WHERE g.id = repeated.id
            RETURNING g.id, repeated.letters)
        INSERT INTO own.letter_minute AS known (minute, group_id, letters, failed, last_at, last_id)
        SELECT date_trunc('minute', now()), id, letters, 0, now(), (SELECT max(id) FROM own.letter) FROM grouped
        ON CONFLICT (minute, group_id) DO UPDATE
           SET letters = known.letters + excluded.letters, last_at = greatest(known.last_at, excluded.last_at),
               last_id = greatest(known.last_id, excluded.last_id)
        """,  # noqa: S608  # constant text
        keys=list(repeats),
        arrivals=list(repeats.values()),
    )


async def count_reprocessed(tx: Transaction, record_id: int, entry: Entry) -> None:
    """A kept dead letter has failed its execution. It stays in its group and in its minute."""
    if entry.outcome is not Outcome.FAILED:
        return
    # Retention may have deleted the minute; then only the group counts it.
    await tx.run(
        """
        WITH grouped AS (
            UPDATE own.letter_group g SET failed = g.failed + 1
              FROM own.letter l WHERE l.id = :id AND g.id = l.group_id
            RETURNING g.id, date_trunc('minute', l.received_at) AS minute)
        UPDATE own.letter_minute m SET failed = m.failed + 1
          FROM grouped WHERE m.group_id = grouped.id AND m.minute = grouped.minute
        """,
        id=record_id,
    )


async def groups(database: Database, *, since: datetime, until: datetime, limit: int = 8) -> list[GroupCount]:
    """Those with the most dead letters first. A window begins and ends with whole minutes."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            f"""
            SELECT {_GROUP}, counted.letters AS window_letters, counted.failed AS window_failed,
                   counted.last_at AS window_last_at
              FROM (SELECT group_id, sum(letters) AS letters, sum(failed) AS failed, max(last_at) AS last_at
                      FROM own.letter_minute WHERE minute >= date_trunc('minute', CAST(:since AS timestamptz))
                       AND minute < :until
                     GROUP BY group_id) AS counted
              JOIN own.letter_group g ON g.id = counted.group_id
             ORDER BY counted.letters DESC, counted.last_at DESC, g.id LIMIT :limit
            """,  # noqa: S608  # constants
            since=since,
            until=until,
            limit=limit,
        )
    return [
        GroupCount(
            group=_group(row),
            letters=int(row.window_letters),
            failed_by_letter=int(row.window_failed),
            last_at=row.window_last_at,
        )
        for row in rows
    ]


async def count_groups(database: Database, *, since: datetime, until: datetime) -> int:
    # Grouped, not counted as distinct, for which PostgreSQL sorts every minute of a day.
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT count(*) AS groups
              FROM (SELECT group_id FROM own.letter_minute
                     WHERE minute >= date_trunc('minute', CAST(:since AS timestamptz)) AND minute < :until
                     GROUP BY group_id) AS seen
            """,
            since=since,
            until=until,
        )
    return int(row.groups)


async def group(database: Database, group_id: str) -> Group | None:
    async with database.transaction() as tx:
        row = await tx.row(
            f"SELECT {_GROUP} FROM own.letter_group g WHERE g.id = :id",  # noqa: S608  # constants
            id=storable(group_id),
        )
    return _group(row) if row else None


async def letters_per_minute(
    database: Database, *, since: datetime, until: datetime, group_id: str | None = None
) -> list[MinuteCount]:
    """In order of time; a minute without dead letters is missing. `group_id`: only those of this group."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT m.minute, g.reason, sum(m.letters) AS letters
              FROM own.letter_minute m JOIN own.letter_group g ON g.id = m.group_id
             WHERE m.minute >= date_trunc('minute', CAST(:since AS timestamptz)) AND m.minute < :until
               AND (CAST(:group_id AS text) IS NULL OR m.group_id = :group_id)
             GROUP BY m.minute, g.reason ORDER BY m.minute, g.reason
            """,
            since=since,
            until=until,
            group_id=group_id,
        )
    return [MinuteCount(minute=row.minute, reason=row.reason, letters=int(row.letters)) for row in rows]


async def delete_groups(database: Database, *, older_than_seconds: float) -> int:
    """Delete groups without a dead letter for this long. Returns their number."""
    async with database.transaction() as tx:
        # A locked group is being counted, so it is not old.
        result = await tx.run(
            """
            DELETE FROM own.letter_group WHERE id IN (
                SELECT id FROM own.letter_group WHERE last_at < now() - make_interval(secs => :age)
                   FOR UPDATE SKIP LOCKED)
            """,
            age=float(older_than_seconds),
        )
    return result.rowcount


async def delete_minutes(database: Database, *, older_than_seconds: float) -> int:
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.letter_minute WHERE minute < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount


def _group(row: Row[Any]) -> Group:
    return Group(
        id=row.id,
        category=Category(row.category),
        reason=row.reason,
        queue=row.queue,
        detail=row.detail,
        worker_id=row.worker_id,
        first_at=row.first_at,
        last_at=row.last_at,
        letters=row.letters,
        failed_by_letter=row.failed,
        actions=tuple(row.actions[:ACTIONS_SHOWN]),
        more_actions=max(0, len(row.actions) - ACTIONS_SHOWN),
    )
