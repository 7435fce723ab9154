"""Who leads: one row with a holder and an end, by the database's clock.

A session's advisory lock would not do: it fails behind a transaction pooler, and outlives a half-open connection.
"""

from dlq_handler.store.engine import Database
from dlq_handler.store.transaction import Transaction


async def take(database: Database, name: str, *, holder: str, seconds: float) -> bool:
    """Take the lease, or renew our own; False while somebody else has it."""
    async with database.transaction() as tx:
        row = await tx.row(
            """
            INSERT INTO own.lease AS known (name, holder, until)
            VALUES (:name, :holder, clock_timestamp() + make_interval(secs => :seconds))
            ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
             WHERE known.holder = excluded.holder OR known.until < clock_timestamp()
            RETURNING holder
            """,
            name=name,
            holder=holder,
            seconds=float(seconds),
        )
    return row is not None


async def renew(tx: Transaction, name: str, *, holder: str, seconds: float) -> bool:
    """Renew it inside a transaction, to the end of which nobody else can take it; False when it is not ours."""
    row = await tx.row(
        """
        UPDATE own.lease SET until = clock_timestamp() + make_interval(secs => :seconds)
         WHERE name = :name AND holder = :holder RETURNING holder
        """,
        name=name,
        holder=holder,
        seconds=float(seconds),
    )
    return row is not None


async def give_up(database: Database, name: str, *, holder: str) -> None:
    """So that nobody has to wait for its end."""
    async with database.transaction() as tx:
        await tx.run(
            "DELETE FROM own.lease WHERE name = :name AND holder = :holder", name=name, holder=holder
        )
