"""Whether anybody is to be notified: one row for all replicas, by the database's clock."""

from dlq_handler.domain.operation import Mute
from dlq_handler.domain.text import storable
from dlq_handler.store.engine import Database
from dlq_handler.store.transaction import Transaction

__all__ = ["Mute", "lock", "look", "mute", "unmute"]


async def look(database: Database) -> Mute | None:
    """None: nothing is muted, or not any more."""
    async with database.transaction() as tx:
        row = await tx.row("SELECT at, until, by, reason FROM own.mute WHERE until > clock_timestamp()")
    return None if row is None else Mute(**row._asdict())


async def lock(tx: Transaction) -> Mute | None:
    """For one who will change what it saw: nobody else can until the transaction ends."""
    # The table and not the row: where nothing is muted there is none.
    await tx.run("LOCK TABLE own.mute IN SHARE ROW EXCLUSIVE MODE")
    row = await tx.row("SELECT at, until, by, reason FROM own.mute WHERE until > clock_timestamp()")
    return None if row is None else Mute(**row._asdict())


async def mute(tx: Transaction, *, for_seconds: float, reason: str, by: str) -> None:
    """From now on; an earlier one is over."""
    await tx.run(
        """
        INSERT INTO own.mute (at, until, by, reason)
        SELECT now, now + make_interval(secs => :seconds), :by, :reason FROM (SELECT clock_timestamp() AS now) AS clock
        ON CONFLICT (is_the_row) DO UPDATE
           SET at = excluded.at, until = excluded.until, by = excluded.by, reason = excluded.reason
        """,
        seconds=float(for_seconds),
        by=storable(by),
        reason=storable(reason),
    )


async def unmute(tx: Transaction) -> None:
    await tx.run("DELETE FROM own.mute")
