"""The lease of the leader: one row with a holder and an end, by the database's clock.

An advisory lock of a session fails behind a transaction pooler, and outlives a half-open connection.
Also the progress of a scan, where a new leader continues instead of starting again, and the server's own state.
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
    """False: it expired, and no replica has taken it since."""


async def read_lease(tx: Transaction, name: str) -> Lease | None:
    """None: no replica has ever taken it, or its last holder gave it up."""
    row = await tx.row(
        "SELECT holder, until, until >= clock_timestamp() AS is_held FROM own.lease WHERE name = :name",
        name=name,
    )
    return None if row is None else Lease(holder=row.holder, until=row.until, is_held=row.is_held)


async def take(database: Database, name: str, *, holder: str, seconds: float) -> bool:
    """Take the lease, or renew it. False: another holder has it."""
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
    """Renew it inside a transaction: no other holder can take it until the end. False: another holder has it."""
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
    """Another replica can take it at once."""
    async with database.transaction() as tx:
        await tx.run(
            "DELETE FROM own.lease WHERE name = :name AND holder = :holder", name=name, holder=holder
        )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    now: datetime
    role: str
    is_in_recovery: bool


async def read_server(database: Database) -> ServerState:
    async with database.transaction() as tx:
        [row] = await tx.rows(
            "SELECT clock_timestamp() AS now, current_user AS role, pg_is_in_recovery() AS is_in_recovery"
        )
    return ServerState(now=row.now, role=row.role, is_in_recovery=row.is_in_recovery)


async def database_time(tx: Transaction) -> datetime:
    [row] = await tx.rows("SELECT clock_timestamp() AS now")
    now: datetime = row.now
    return now
