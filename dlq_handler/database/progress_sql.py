"""How far a scan has come: a new leader continues there instead of starting again."""

from datetime import datetime

from dlq_handler.database.transaction import Transaction


async def read_progress(tx: Transaction, name: str) -> datetime | None:
    """By the database's clock. None: no leader ever finished, or the clock was set back since."""
    row = await tx.row(
        "SELECT until FROM own.progress WHERE name = :name AND until <= clock_timestamp()", name=name
    )
    return None if row is None else row.until


async def keep_progress(tx: Transaction, name: str, *, until: datetime) -> None:
    await tx.run(
        """
        INSERT INTO own.progress (name, until) VALUES (:name, :until)
        ON CONFLICT (name) DO UPDATE SET until = excluded.until
        """,
        name=name,
        until=until,
    )
