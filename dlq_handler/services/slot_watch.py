"""Count the slots that ended executions still hold. Every replica counts: the number is the same for all of them.

Read only. The reconciler, on the leader, is who tells of such slots, and then it is for the host to free them.
"""

import asyncio

from dlq_handler.errors import Contended, Unavailable
from dlq_handler.services.every import every
from dlq_handler.services.observer import Observer
from dlq_handler.store.engine import Database
from dlq_handler.store.reconcile import count_leaked_slots


class SlotWatch:
    def __init__(
        self,
        database: Database,
        *,
        held_slot_seconds: float,
        observer: Observer,
        interval_seconds: float = 30.0,
    ) -> None:
        """`held_slot_seconds`: before this much time the notice that frees a slot may be on its way."""
        self._database, self._observer = database, observer
        self._held_slot_seconds, self._interval_seconds = held_slot_seconds, interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="slot-watch")

    async def tick(self) -> None:
        try:
            count = await count_leaked_slots(self._database, held_seconds=self._held_slot_seconds)
        except (Unavailable, Contended):
            self._observer.leaked_slots_seen(None)
            raise
        self._observer.leaked_slots_seen(count)
