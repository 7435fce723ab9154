"""What was swept, and when: a link to a letter, a group, an execution or a worker says so, and not that it never was.

Exactly those: an id that was drawn and never used is none of them. For letters one row an hour, and ids that follow
each other take no room in it. All of it is forgotten in its turn, so that it stays small.
"""

from collections.abc import Collection, Iterable
from datetime import datetime

from dlq_handler.domain.text import storable
from dlq_handler.store.engine import Database
from dlq_handler.store.transaction import Transaction


async def note_swept(tx: Transaction, letter_ids: Collection[int]) -> None:
    """In the transaction that deletes them."""
    if not letter_ids:
        return
    await tx.run(
        """
        INSERT INTO own.swept AS known (hour, at, ids)
        SELECT date_trunc('hour', now()), now(), range_agg(int8range(id, id, '[]'))
          FROM unnest(CAST(:ids AS bigint[])) AS id
        ON CONFLICT (hour) DO UPDATE SET at = greatest(known.at, excluded.at), ids = known.ids + excluded.ids
        """,
        ids=list(letter_ids),
    )


async def letter_swept_at(database: Database, letter_id: int) -> datetime | None:
    """To the hour at least. None: there never was such a letter, it is still there, or nobody remembers."""
    async with database.transaction() as tx:
        row = await tx.row(
            "SELECT at FROM own.swept WHERE ids @> CAST(:id AS bigint) ORDER BY hour DESC LIMIT 1",
            id=letter_id,
        )
    return row.at if row else None


async def note_swept_groups(tx: Transaction, group_ids: Collection[str]) -> None:
    """In the transaction that deletes them. One may come again, and be swept again."""
    await tx.run(
        """
        INSERT INTO own.swept_group (id, at) SELECT id, now() FROM unnest(CAST(:ids AS text[])) AS id ORDER BY id
        ON CONFLICT (id) DO UPDATE SET at = excluded.at
        """,
        ids=list(group_ids),
    )


async def group_swept_at(database: Database, group_id: str) -> datetime | None:
    """For one that is not there: None says that it never was, or that nobody remembers."""
    async with database.transaction() as tx:
        row = await tx.row("SELECT at FROM own.swept_group WHERE id = :id", id=storable(group_id))
    return row.at if row else None


async def note_swept_executions(tx: Transaction, execution_ids: Iterable[int | None]) -> None:
    """Of which something on record was deleted, in the transaction that deletes it; more may be left, or the host's
    own row: whoever asks looks there first.
    """
    ids = sorted({one for one in execution_ids if one is not None})
    if ids:
        await tx.run(
            """
            INSERT INTO own.swept_execution (at, span, ids)
            VALUES (now(), int8range(:lowest, :highest, '[]'), CAST(:ids AS bigint[]))
            """,
            lowest=ids[0],
            highest=ids[-1],
            ids=ids,
        )


async def execution_swept_at(database: Database, execution_id: int) -> datetime | None:
    """For one of which nothing is left. None: nothing was ever on record about it, or nobody remembers."""
    async with database.transaction() as tx:
        [row] = await tx.rows(
            "SELECT max(at) AS at FROM own.swept_execution WHERE span @> CAST(:id AS bigint) AND :id = ANY (ids)",
            id=execution_id,
        )
    swept_at: datetime | None = row.at
    return swept_at


async def note_swept_workers(tx: Transaction, worker_ids: Collection[int]) -> None:
    """In the transaction that deletes the last that was on record of them."""
    await tx.run(
        """
        INSERT INTO own.swept_worker (id, at) SELECT id, now() FROM unnest(CAST(:ids AS bigint[])) AS id ORDER BY id
        ON CONFLICT (id) DO UPDATE SET at = excluded.at
        """,
        ids=list(worker_ids),
    )


async def worker_swept_at(database: Database, worker_id: int) -> datetime | None:
    """For one that is neither registered nor in the chronicle. None: it never was, or nobody remembers."""
    async with database.transaction() as tx:
        row = await tx.row("SELECT at FROM own.swept_worker WHERE id = :id", id=worker_id)
    return row.at if row else None


async def forget_swept(database: Database, *, older_than_seconds: float) -> int:
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.swept WHERE hour < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
        for table in ("swept_group", "swept_execution", "swept_worker"):
            await tx.run(
                f"DELETE FROM own.{table} WHERE at < now() - make_interval(secs => :age)",  # noqa: S608  # our own names
                age=float(older_than_seconds),
            )
    return result.rowcount
