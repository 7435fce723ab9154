"""Which letters and groups were swept, and when: a link to one of them says so, instead of that it never was.

Exactly those: an id that was drawn and never used is none of them. For letters one row an hour, and ids that follow
each other take no room in it.
"""

from collections.abc import Collection
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


async def forget_swept(database: Database, *, older_than_seconds: float) -> int:
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.swept WHERE hour < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
        await tx.run(
            "DELETE FROM own.swept_group WHERE at < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount
