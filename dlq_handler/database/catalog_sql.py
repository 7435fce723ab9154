"""What an examination asks the database, by its catalogue alone: it must answer also where rights are missing."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.engine import Database

# What the sidecar reads or writes of the host's tables everywhere; what some hosts lack is asked for where it is used.
_NEEDED = {
    "execution": ("id", "status", "result", "updated", "worker", "action", "action_ref", "workflow_task"),
    "worker": ("id", "name", "status", "last_heartbeat"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLook:
    now: datetime
    role: str
    is_in_recovery: bool


async def look_at_server(database: Database) -> ServerLook:
    async with database.transaction() as tx:
        [row] = await tx.rows(
            "SELECT clock_timestamp() AS now, current_user AS role, pg_is_in_recovery() AS is_in_recovery"
        )
    return ServerLook(now=row.now, role=row.role, is_in_recovery=row.is_in_recovery)


async def missing_of_host(database: Database) -> list[str]:
    """Tables and columns of the host that are not there; empty when all are."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT t.relname AS "table", a.attname AS "column"
              FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = :schema
              JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
             WHERE t.relkind IN ('r', 'p', 'v', 'f') AND t.relname = ANY (CAST(:tables AS text[]))
            """,
            schema=database.host_schema,
            tables=list(_NEEDED),
        )
    present = {(row.table, row.column) for row in rows}
    tables = {table for table, _ in present}
    missing = [f"table {table}" for table in _NEEDED if table not in tables]
    return missing + [
        f"column {table}.{column}"
        for table, columns in _NEEDED.items()
        if table in tables
        for column in columns
        if (table, column) not in present
    ]
