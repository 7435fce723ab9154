"""The state of the database as the safety gate sees it. Reads only, so that a standby answers too."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.migrate import version_of
from dlq_handler.database.schema_version import SchemaVersion
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
