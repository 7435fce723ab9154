"""Count the slots that ended executions still hold. Every replica counts: the number is the same for all of them.

Read only. The reconciler, on the leader, is who tells of such slots, and then it is for the host to free them.
"""

import asyncio

from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.reconcile_sql import count_leaked_slots
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics


class SlotWatch:
    def __init__(
        self,
        database: Database,
        *,
        held_slot_seconds: float,
        metrics: Metrics,
        interval_seconds: float = 30.0,
    ) -> None:
        """`held_slot_seconds`: before this much time the notice that frees a slot may be on its way."""
        self._database, self._metrics = database, metrics
        self._held_slot_seconds, self._interval_seconds = held_slot_seconds, interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="slot-watch")

    async def tick(self) -> None:
        try:
            count = await count_leaked_slots(self._database, held_seconds=self._held_slot_seconds)
        except (Unavailable, Contended):
            self._metrics.set_leaked_slots(None)
            raise
        self._metrics.set_leaked_slots(count)
