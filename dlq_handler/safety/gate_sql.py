"""What the gate asks the database: is it a standby, what time is it, do these executions exist, which version have the
tables of dlq-handler?
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.migrate import version_of
from dlq_handler.database.schema_version import SchemaVersion
from dlq_handler.database.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLook:
    now: datetime
    is_in_recovery: bool
    existing: int
    """How many of the executions asked for exist."""
    schema: SchemaVersion


async def look(tx: Transaction, execution_ids: Collection[int]) -> DatabaseLook:
    """Reads only, so that a standby answers too."""
    [row] = await tx.rows(
        """
        SELECT clock_timestamp() AS now, pg_is_in_recovery() AS is_in_recovery,
               (SELECT count(*) FROM execution WHERE id = ANY (CAST(:ids AS bigint[]))) AS existing,
               (SELECT version_num FROM own.alembic_version) AS version,
               (SELECT least_program_version FROM own.compatibility) AS least_program_version
        """,
        ids=list(execution_ids),
    )
    return DatabaseLook(
        now=row.now,
        is_in_recovery=row.is_in_recovery,
        existing=row.existing,
        schema=version_of(row.version, row.least_program_version),
    )
