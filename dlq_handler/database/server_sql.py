"""The database server itself: its clock, its role, whether it is a standby. No table is read."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction


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
