"""Delete old records of one table in batches, each in a transaction of its own.

A batch is the next records in order of their ids, both those to delete and those that stay. So no statement reads more
than a batch, however many records stay before or after those to delete. Each batch begins after the last record of the
batch before: it does not pass the dead rows that those left behind.
"""

from collections.abc import Callable

from dlq_handler.database.engine import Database

BATCH_SIZE = 1000

MayGoOn = Callable[[], bool]
"""Asked before each batch. False: enough for now."""


def always() -> bool:
    return True


async def delete_in_batches(
    database: Database,
    table: str,
    condition: str,
    *,
    until: str = "false",
    may_go_on: MayGoOn,
    **parameters: object,
) -> int:
    """Delete the records of `own.<table>` that fulfill `condition`, in order of their ids. Returns their number.

    The first batch whose records all fulfill `until` is the last one. Records that another transaction has locked are
    left for the next time.
    """
    count, after = 0, 0
    while may_go_on():
        async with database.transaction() as tx:
            [batch] = await tx.rows(
                f"""
                SELECT max(id) AS last, bool_and(is_last) AS is_last
                  FROM (SELECT id, {until} AS is_last FROM own.{table}
                         WHERE id > :after ORDER BY id LIMIT :batch) AS batch
                """,  # noqa: S608  # the callers are in this folder, and their text is constant
                after=after,
                batch=BATCH_SIZE,
                **parameters,
            )
            if batch.last is None or batch.is_last:
                break
            result = await tx.run(
                f"""
                DELETE FROM own.{table} WHERE id IN (
                    SELECT id FROM own.{table} WHERE id > :after AND id <= :last AND {condition}
                     ORDER BY id FOR UPDATE SKIP LOCKED)
                """,  # noqa: S608  # the callers are in this folder, and their text is constant
                after=after,
                last=batch.last,
                **parameters,
            )
        count, after = count + result.rowcount, batch.last
    return count
