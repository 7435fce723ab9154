"""Find running executions whose worker was restarted under its name. The leader checks connections, and keeps the
results for the leaders after it.

Only for a host whose services never reconnect (`dlq_handler.worker.reconnects: false`). Asks only about workers that
run something; decides nothing.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.lease_sql import database_time
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

# One request each. In a larger fleet the workers take turns: the time between two checks grows, and with it the time of
# which nothing is known.
MOST_AT_ONCE = 100

_NEVER = datetime.min.replace(tzinfo=UTC)


class WorkerProcesses:
    def __init__(
        self, database: Database, source: ConnectionSource, leadership: Leadership, *, is_shadow: bool
    ) -> None:
        self._database, self._source, self._leadership = database, source, leadership
        self._is_shadow = is_shadow

    async def observe(self, worker_ids: Collection[int], *, checked_at: datetime) -> dict[int, ProcessView]:
        """Of those of the workers that run something which the present process is not known to have begun.

        `checked_at`: the database's time, before this. Raises `LeaseLost`.
        """
        async with self._database.transaction() as tx:
            runs = await oldest_runs(tx)
            asked = runs.keys() & set(worker_ids)
            before = (
                await connections_sql.read_connections(tx, asked, is_shadow=self._is_shadow) if asked else {}
            )
        if not asked:
            return {}
        first = sorted(asked, key=lambda one: _turn(one, before.get(one)))[:MOST_AT_ONCE]
        answers = await self._source.ask({one: before.get(one) for one in first})
        after = await self._keep(before, answers, checked_at)
        views = {one: view_of(known, answers[one], self._source.trouble) for one, known in after.items()}
        return {one: view for one, view in views.items() if not view.began_all_since(runs[one])}

    async def _keep(
        self,
        before: Mapping[int, KnownConnection],
        answers: Mapping[int, ConnectionObservation | None],
        checked_at: datetime,
    ) -> dict[int, KnownConnection]:
        async with self._database.transaction() as tx:
            answered_at = await database_time(tx)
            after = {
                one: observe_again(
                    one, before.get(one), answer, checked_at=checked_at, answered_at=answered_at
                )
                for one, answer in answers.items()
            }
            await connections_sql.keep_connections(tx, after.values(), is_shadow=self._is_shadow)
            # A leader that lost the lease while it waited for the API would overwrite a newer check with an older one.
            await self._leadership.fence(tx)
        return after


def _turn(worker_id: int, known: KnownConnection | None) -> tuple[datetime, datetime, int]:
    """The longest unasked first, answered or not: without an answer, too, each run must reach its limit."""
    if known is None:
        return _NEVER, _NEVER, worker_id
    return known.checked_at, known.observed_at or _NEVER, worker_id


async def observe_process(
    database: Database, source: ConnectionSource, worker_id: int, *, is_shadow: bool
) -> ProcessView:
    """What the leader's next check would find. Keeps nothing."""
    async with database.transaction() as tx:
        checked_at = await database_time(tx)
        before = (await connections_sql.read_connections(tx, [worker_id], is_shadow=is_shadow)).get(worker_id)
    answer = (await source.ask({worker_id: before})).get(worker_id)
    async with database.transaction() as tx:
        answered_at = await database_time(tx)
    known = observe_again(worker_id, before, answer, checked_at=checked_at, answered_at=answered_at)
    return view_of(known, answer, source.trouble)
