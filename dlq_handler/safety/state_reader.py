"""Read what a replica must know all the time, in one transaction every 2 s: gate, brake, ids of the registered workers.

Every replica reads it, because each decides by its own view. One transaction instead of one for each user: an idle
replica costs the database little.
"""

import asyncio

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.workers_sql import read_worker_ids
from dlq_handler.loop import every
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate


class StateReader:
    def __init__(
        self, database: Database, *, gate: Gate, brake: Brake, interval_seconds: float = 2.0
    ) -> None:
        self._database, self._gate, self._brake = database, gate, brake
        self._interval_seconds = interval_seconds
        self._worker_ids: frozenset[int] = frozenset()
        self._read_at = float("-inf")
        self._wakes: list[asyncio.Event] = []

    def wake_when_changed(self, wake: asyncio.Event) -> None:
        """Set this event whenever a worker was registered or removed."""
        self._wakes.append(wake)

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="state-reader")

    async def worker_ids(self) -> frozenset[int]:
        """Ids of the registered workers, at most two intervals old. The same object while no id has changed.

        Raises `Unavailable`.
        """
        if monotonic_seconds() - self._read_at > 2 * self._interval_seconds:
            await self.tick()
        return self._worker_ids

    async def tick(self) -> None:
        try:
            async with self._database.transaction() as tx:
                await self._gate.read(tx)
                await self._brake.read(tx)
                ids = await read_worker_ids(tx)
        except (Unavailable, Contended):
            self._brake.note_unread()
            raise
        self._read_at = monotonic_seconds()
        if ids != self._worker_ids:
            self._worker_ids = ids
            for wake in self._wakes:
                wake.set()
        await self._brake.delete_old_counts()
