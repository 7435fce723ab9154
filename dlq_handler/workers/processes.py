"""Find running executions whose worker was restarted under its name: the leader's looks at connections, kept for the
leaders after it.

Only for a host whose services never reconnect (`dlq_handler.worker.reconnects: false`). Asks only about workers that
run something; decides nothing.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.server_sql import database_time
from dlq_handler.host.workers_sql import oldest_runs
from dlq_handler.workers import connections_sql
from dlq_handler.workers.connection_source import ConnectionSource
from dlq_handler.workers.worker_process import (
    ConnectionObservation,
    KnownConnection,
    ProcessView,
    observe_again,
    view_of,
)

# One request each. In a larger fleet the workers take turns: the time between two looks grows, and with it the time of
# which nothing is known.
MOST_AT_ONCE = 100

_NEVER = datetime.min.replace(tzinfo=UTC)


class WorkerProcesses:
    def __init__(
        self, database: Database, source: ConnectionSource, leadership: Leadership, *, is_shadow: bool
    ) -> None:
        self._database, self._source, self._leadership = database, source, leadership
        self._is_shadow = is_shadow

    async def look(self, worker_ids: Collection[int], *, checked_at: datetime) -> dict[int, ProcessView]:
        """Of those of the workers that run something which the present process is not known to have begun.

        `asked_at`: the database's time, before this. Raises `LeaseLost`.
        """
        async with self._database.transaction() as tx:
            runs = await oldest_runs(tx)
            asked = runs.keys() & set(worker_ids)
            known = (
                await connections_sql.read_connections(tx, asked, is_shadow=self._is_shadow) if asked else {}
            )
        if not asked:
            return {}
        first = sorted(asked, key=lambda one: _turn(one, known.get(one)))[:MOST_AT_ONCE]
        sights = await self._source.ask({one: known.get(one) for one in first})
        looks = await self._keep(known, sights, checked_at)
        views = {one: view_of(look, sights[one], self._source.trouble) for one, look in looks.items()}
        return {one: view for one, view in views.items() if not view.began_all_since(runs[one])}

    async def _keep(
        self,
        known: Mapping[int, KnownConnection],
        sights: Mapping[int, ConnectionObservation | None],
        checked_at: datetime,
    ) -> dict[int, KnownConnection]:
        async with self._database.transaction() as tx:
            answered_at = await database_time(tx)
            looks = {
                one: observe_again(one, known.get(one), sight, checked_at=checked_at, answered_at=answered_at)
                for one, sight in sights.items()
            }
            await connections_sql.keep_connections(tx, looks.values(), is_shadow=self._is_shadow)
            # A leader that lost the lease while it waited for the API would write an older look over a newer one.
            await self._leadership.fence(tx)
        return looks


def _turn(worker_id: int, look: KnownConnection | None) -> tuple[datetime, datetime, int]:
    """The longest unasked first, answered or not: without an answer, too, each run must reach its limit."""
    if look is None:
        return _NEVER, _NEVER, worker_id
    return look.checked_at, look.observed_at or _NEVER, worker_id


async def look_at_process(
    database: Database, source: ConnectionSource, worker_id: int, *, is_shadow: bool
) -> ProcessView:
    """What the leader's next look would find. Keeps nothing."""
    async with database.transaction() as tx:
        checked_at = await database_time(tx)
        known = (await connections_sql.read_connections(tx, [worker_id], is_shadow=is_shadow)).get(worker_id)
    sight = (await source.ask({worker_id: known})).get(worker_id)
    async with database.transaction() as tx:
        answered_at = await database_time(tx)
    look = observe_again(worker_id, known, sight, checked_at=checked_at, answered_at=answered_at)
    return view_of(look, sight, source.trouble)
