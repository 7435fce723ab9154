"""The one row that a game day makes, and the clock by which it is timed."""

from collections.abc import Mapping

from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.execution import GAME_DAY_ACTION_REF
from dlq_handler.domain.game_day import Clock, CreatedExecution
from dlq_handler.domain.gate import ClockLook
from dlq_handler.store.engine import Database
from dlq_handler.store.jsonb import as_jsonb

# The quickest answer says most precisely when it was given.
_CLOCK_LOOKS = 5


async def create_execution(database: Database, config: Mapping[str, object]) -> CreatedExecution:
    """As the scheduler leaves one behind, but without a worker: there is no row that it could point to."""
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            INSERT INTO execution (action_ref, config, status) VALUES (:action_ref, CAST(:config AS jsonb), 'scheduled')
            RETURNING id, updated
            """,
            action_ref=GAME_DAY_ACTION_REF,
            config=as_jsonb(config),
        )
    return CreatedExecution(id=row.id, updated=row.updated)


async def read_clock(database: Database) -> Clock:
    looks = []
    async with database.transaction() as tx:
        for _ in range(_CLOCK_LOOKS):
            asked_at = monotonic_seconds()
            [row] = await tx.rows("SELECT clock_timestamp() AS now")
            looks.append(ClockLook(database_time=row.now, asked_at=asked_at, answered_at=monotonic_seconds()))
    return min((Clock(look=look) for look in looks), key=lambda clock: clock.error_seconds)
