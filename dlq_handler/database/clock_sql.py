"""The database's clock, read without any table."""

from datetime import datetime

from dlq_handler.database.transaction import Transaction


async def database_time(tx: Transaction) -> datetime:
    [row] = await tx.rows("SELECT clock_timestamp() AS now")
    now: datetime = row.now
    return now
