"""Delete old records of one table in batches, each in a transaction of its own.

Each batch begins after the last record of the batch before: it does not pass the dead rows that those left behind.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import Row

from dlq_handler.store.engine import Database
from dlq_handler.store.transaction import Transaction

BATCH_SIZE = 1000

MayGoOn = Callable[[], bool]
"""Asked before each batch. False: enough for now."""


def always() -> bool:
    return True


async def _ignore(_: Transaction, __: Sequence[Row[Any]]) -> None:
    pass


async def delete_in_batches(
    database: Database,
    table: str,
    condition: str,
    *,
    may_go_on: MayGoOn,
    deleted: Callable[[Transaction, Sequence[Row[Any]]], Awaitable[None]] = _ignore,
    **parameters: object,
) -> int:
    """Delete the records of `own.<table>` that fulfill `condition`, in order of their ids. Returns their number.

    `deleted` is called in the transaction of each batch, with the id and the execution_id of its records. Records that
    another transaction has locked are left for the next time.
    """
    async with database.transaction() as tx:
        [ids] = await tx.rows(
            f"SELECT min(id) AS first, max(id) AS last FROM own.{table} WHERE {condition}",  # noqa: S608  # our own text
            **parameters,
        )
    count, after = 0, None if ids.first is None else ids.first - 1
    while after is not None and may_go_on():
        async with database.transaction() as tx:
            rows = await tx.rows(
                f"""
                DELETE FROM own.{table} WHERE id IN (
                    SELECT id FROM own.{table} WHERE id > :after AND id <= :last AND {condition}
                     ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED)
                RETURNING id, execution_id
                """,  # noqa: S608  # our own text
                after=after,
                last=ids.last,
                batch=BATCH_SIZE,
                **parameters,
            )
            await deleted(tx, rows)
        count += len(rows)
        after = max(row.id for row in rows) if len(rows) == BATCH_SIZE else None
    return count
