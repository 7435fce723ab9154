"""Set workers that are gone to inactive, so that nothing more is dispatched to them. Off by default.

Off, because nothing in Attune sets a worker back to active but its own restart: whoever turns this on gives up workers
that were only cut off from the database. Leader only, and only workers whose absence is confirmed.
"""

import asyncio

import structlog

from dlq_handler.errors import Contended, RowRejected
from dlq_handler.services.every import every
from dlq_handler.services.gate import Gate
from dlq_handler.services.leadership import Leadership
from dlq_handler.services.worker_watch import WorkerWatch
from dlq_handler.store.engine import Database
from dlq_handler.store.workers import active_among, mark_inactive

log = structlog.get_logger()


class InactiveMarker:
    def __init__(
        self,
        database: Database,
        watch: WorkerWatch,
        leadership: Leadership,
        gate: Gate,
        *,
        interval_seconds: float = 5.0,
    ) -> None:
        self._database, self._watch, self._leadership, self._gate = database, watch, leadership, gate
        self._interval_seconds = interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="inactive-marker")

    async def tick(self) -> None:
        gone = self._watch.gone
        if not gone or not self._leadership.is_leader:
            return
        self._gate.check()
        for worker_id in await active_among(self._database, gone):
            worker = gone[worker_id]
            try:
                # One at a time: a row that cannot be written, or is locked, keeps no other from being marked.
                async with self._database.transaction() as tx:
                    await self._leadership.fence(tx)
                    is_marked = await mark_inactive(tx, worker)
            except (RowRejected, Contended) as error:
                log.warning("worker.not_marked", worker_id=worker_id, error=str(error))
                continue
            if is_marked:
                log.warning(
                    "worker.marked_inactive", worker_id=worker_id, last_heartbeat=worker.last_heartbeat
                )
