"""Which tables and columns of the host are missing, by the catalog alone: no rights on them are needed."""

from dlq_handler.database.engine import Database

NEEDED_COLUMNS = {
    "execution": ("id", "status", "result", "updated", "worker", "action", "action_ref", "workflow_task"),
    "worker": ("id", "name", "status", "last_heartbeat"),
}
"""Of every host. Statements that need more work without it, or belong to a feature that can be left off."""


async def missing_of_host(database: Database) -> list[str]:
    """Missing tables and columns, in words. Empty: none is missing."""
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
