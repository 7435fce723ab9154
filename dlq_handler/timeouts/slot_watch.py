"""Count the slots that ended executions still hold, on every replica, for the metric. Read only.

The reconciler, on the leader, publishes the ends of these executions; then the host frees the slots.
"""

import asyncio

from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.reconcile_sql import count_leaked_slots
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.timeouts.options import MonitorOptions

INTERVAL_SECONDS = 30.0


class SlotWatch:
    def __init__(self, database: Database, options: MonitorOptions, metrics: Metrics) -> None:
        self._database, self._options, self._metrics = database, options, metrics

    async def run(self, stop: asyncio.Event) -> None:
        await every(INTERVAL_SECONDS, self.tick, stop, name="slot-watch")

    async def tick(self) -> None:
        try:
            count = await count_leaked_slots(self._database, held_seconds=self._options.held_slot_seconds)
        except (Unavailable, Contended):
            self._metrics.set_leaked_slots(None)
            raise
        self._metrics.set_leaked_slots(count)
