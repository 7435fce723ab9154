"""Look at the intake queue from outside: is our consumer really there, how much waits, who else consumes?

A client can show "connected" while the broker knows no consumer of it. So the broker is asked, on a fresh channel, and
when it knows none while we think we consume, the intake is rebuilt.
"""

import asyncio

import structlog

from dlq_handler.broker.dead_letter_source import DeadLetterSource
from dlq_handler.errors import Unavailable
from dlq_handler.services.every import every
from dlq_handler.services.observer import Observer
from dlq_handler.services.readiness import Readiness

log = structlog.get_logger()

FOREIGN = "foreign_consumer"


class IntakeWatch:
    def __init__(
        self,
        source: DeadLetterSource,
        *,
        readiness: Readiness,
        observer: Observer,
        interval_seconds: float = 5.0,
    ) -> None:
        self._source, self._readiness, self._observer = source, readiness, observer
        self._interval_seconds = interval_seconds
        self._was_shared = False

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="intake-watch")

    async def tick(self) -> None:
        was_consuming = self._source.incarnation if self._source.is_consuming else None
        try:
            seen = await self._source.look()
        except Unavailable as error:
            self._observer.intake_seen(None, None)
            self._readiness.report("broker", ok=False, detail=error.what)
            raise
        self._readiness.report("broker", ok=True, detail="answers")
        self._observer.intake_seen(seen.ready, seen.consumers)
        if was_consuming is not None and was_consuming == self._source.incarnation and seen.consumers == 0:
            log.error("intake.unregistered", queue=self._source.queue)
            self._source.give_up("the broker knows no consumer of ours")
        self._tell_of_others(seen.consumers)

    def _tell_of_others(self, consumers: int) -> None:
        shared = consumers > 1
        if shared and not self._was_shared:
            log.warning("intake.shared", queue=self._source.queue, consumers=consumers)
        self._was_shared = shared
        self._readiness.note(
            FOREIGN,
            f"{consumers - 1} other consumer(s) on {self._source.queue}: our replicas, or a stock executor that fails "
            "executions without a notice; `dlq-handler topology check` tells which; dlq_handler.intake.queue can name "
            "a queue of our own"
            if shared
            else None,
        )
