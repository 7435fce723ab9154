"""Who leads: one row with a holder and an end, by the database's clock.

A session's advisory lock would not do: it fails behind a transaction pooler, and outlives a half-open connection.
"""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    holder: str
    until: datetime
    is_held: bool
    """False: it ended, and nobody has taken it since."""


async def read_lease(tx: Transaction, name: str) -> Lease | None:
    """For one who only asks. None: nobody has ever taken it, or its last holder gave it up."""
    row = await tx.row(
        "SELECT holder, until, until >= clock_timestamp() AS is_held FROM own.lease WHERE name = :name",
        name=name,
    )
    return None if row is None else Lease(holder=row.holder, until=row.until, is_held=row.is_held)


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
