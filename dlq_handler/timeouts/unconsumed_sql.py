"""The intervals in which the queue of completion events had no consumer, by the database's clock.

An interval is what the checks have shown: from after the first check without a consumer to before the last one. Times
between two checks that are far apart, and the edges, are in no interval: what happened there is unknown.
"""

from collections.abc import Sequence
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.ends import UnconsumedInterval


async def extend_interval(tx: Transaction, *, asked_at: datetime, longest_gap_seconds: float) -> None:
    """Extend the interval of the last check, or begin one. `asked_at`: the clock before this check."""
    extended = await tx.row(
        """
        UPDATE own.unconsumed_interval SET last_observed_at = greatest(last_observed_at, CAST(:asked_at AS timestamptz))
         WHERE id = (SELECT id FROM own.unconsumed_interval
                      WHERE is_open AND last_observed_at >= CAST(:asked_at AS timestamptz) - make_interval(secs => :gap)
                      ORDER BY last_observed_at DESC LIMIT 1)
        RETURNING id
        """,
        asked_at=asked_at,
        gap=float(longest_gap_seconds),
    )
    if extended is None:
        await tx.run(
            """
            INSERT INTO own.unconsumed_interval (began_at, last_observed_at, is_open)
            SELECT now, now, true FROM clock_timestamp() AS now
            """
        )


async def close_interval(tx: Transaction) -> None:
    """A consumer is back: the next check without a consumer begins another interval."""
    await tx.run("UPDATE own.unconsumed_interval SET is_open = false WHERE is_open")


async def intervals_after(tx: Transaction, moment: datetime | None) -> Sequence[UnconsumedInterval]:
    """Those that ended after `moment`, in order of their ends; None: all on record."""
    rows = await tx.rows(
        """
        SELECT began_at, last_observed_at FROM own.unconsumed_interval
         WHERE last_observed_at > coalesce(CAST(:moment AS timestamptz), '-infinity') AND last_observed_at > began_at
         ORDER BY last_observed_at
        """,
        moment=moment,
    )
    return [UnconsumedInterval(began_at=row.began_at, last_observed_at=row.last_observed_at) for row in rows]


async def delete_old(database: Database, *, older_than_seconds: float) -> int:
    """Delete intervals that ended that long ago. Returns their number."""
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.unconsumed_interval WHERE last_observed_at < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount
