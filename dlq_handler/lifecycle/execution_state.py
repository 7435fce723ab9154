"""The state of executions, as a condition for keeping or cleaning up what belongs to them.

The names are those of the source document (a2a-java's `TaskStateProvider`). An execution that is final stays active for
a grace time, in which late messages about it may still arrive.
"""

from typing import Protocol

from dlq_handler.database.engine import Database
from dlq_handler.host.worker_lifecycle_sql import read_execution_age

GRACE_SECONDS = 15.0
"""The default of the source's own implementation; its document says 48 hours."""


class ExecutionStateProvider(Protocol):
    """For an unknown execution both answers are False."""

    async def is_active(self, execution_id: int) -> bool:
        """It is not final, or became final within the grace time."""

    async def is_finalized(self, execution_id: int) -> bool:
        """It is final; the grace time does not count."""


class HostExecutionStates:
    """Reads the host's table. An execution in a status that only a newer host knows is not final."""

    def __init__(self, database: Database, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self._database, self._grace_seconds = database, grace_seconds

    async def is_active(self, execution_id: int) -> bool:
        async with self._database.transaction() as tx:
            found = await read_execution_age(tx, execution_id)
        if found is None:
            return False
        # A row without a readable time was changed at an unknown moment: within the grace time, perhaps.
        return not found.is_final or found.seconds is None or found.seconds <= self._grace_seconds

    async def is_finalized(self, execution_id: int) -> bool:
        async with self._database.transaction() as tx:
            found = await read_execution_age(tx, execution_id)
        return found is not None and found.is_final
