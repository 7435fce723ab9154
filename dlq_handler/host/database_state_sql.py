"""The state of the database for the safety gate, and missing tables of the host. Reads only: a standby answers too."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.migrate import SchemaVersion, version_of
from dlq_handler.database.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    now: datetime
    is_in_recovery: bool
    existing: int
    """The number of the given executions that exist."""
    schema: SchemaVersion


async def read_database_state(tx: Transaction, execution_ids: Collection[int]) -> DatabaseState:
    [row] = await tx.rows(
        """
        SELECT clock_timestamp() AS now, pg_is_in_recovery() AS is_in_recovery,
               (SELECT count(*) FROM execution WHERE id = ANY (CAST(:ids AS bigint[]))) AS existing,
               (SELECT version_num FROM own.alembic_version) AS version,
               (SELECT least_program_version FROM own.compatibility) AS least_program_version
        """,
        ids=list(execution_ids),
    )
    return DatabaseState(
        now=row.now,
        is_in_recovery=row.is_in_recovery,
        existing=row.existing,
        schema=version_of(row.version, row.least_program_version),
    )


NEEDED_COLUMNS = {
    "execution": ("id", "status", "result", "updated", "worker", "action", "action_ref", "workflow_task"),
    "worker": ("id", "name", "status", "last_heartbeat"),
}
"""Of every host. Statements that need more work without it, or belong to a feature that can be left off."""


async def missing_of_host(database: Database) -> list[str]:
    """Missing tables and columns, by the catalog alone: no rights on them are needed. Empty: none is missing."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT t.relname AS "table", a.attname AS "column"
              FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = :schema
              JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
             WHERE t.relkind IN ('r', 'p', 'v', 'f') AND t.relname = ANY (CAST(:tables AS text[]))
            """,
            schema=database.host_schema,
            tables=list(NEEDED_COLUMNS),
        )
    present = {(row.table, row.column) for row in rows}
    tables = {table for table, _ in present}
    missing = [f"table {table}" for table in NEEDED_COLUMNS if table not in tables]
    return missing + [
        f"column {table}.{column}"
        for table, columns in NEEDED_COLUMNS.items()
        if table in tables
        for column in columns
        if (table, column) not in present
    ]
