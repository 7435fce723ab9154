"""Publish a message of dlq-handler's own now and then, unless the relay or the canary has just done so.

Every replica does it, not only the leader: a replica that becomes the leader has then watched the broker already, and
the timeout monitor can go on at once. After a start it cannot say anything of the time before.
"""

import asyncio

import structlog

from dlq_handler.broker.publish_times import CONFIRMED_WITHIN_SECONDS, PublishRecorder
from dlq_handler.broker.publisher import PublishChecker, PublishCheckRefused
from dlq_handler.clock import monotonic_seconds
from dlq_handler.loop import every
from dlq_handler.tasks import task_group

log = structlog.get_logger()

# A right that is missing may be granted meanwhile. Each attempt leaves a line in the broker's log.
TRY_REFUSED_AGAIN_SECONDS = 300.0


class PublishWatch:
    def __init__(self, check: PublishChecker, record: PublishRecorder, *, deadline_seconds: float) -> None:
        self._check, self._record = check, record
        # Several within the time that a confirmed publish counts for, and within each deadline.
        self._interval_seconds = min(CONFIRMED_WITHIN_SECONDS, deadline_seconds) / 4
        self._is_refused = False
        self._refused_until = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        async with task_group() as group:
            turning = group.create_task(every(self._interval_seconds, self.tick, stop, name="publish-watch"))
            await stop.wait()
            # A publish that hangs in an alarm must not keep the process from its end.
            turning.cancel()

    async def tick(self) -> None:
        ago = self._record.view().confirmed_seconds_ago
        is_due = ago is None or ago >= self._interval_seconds / 2
        if not is_due or monotonic_seconds() < self._refused_until:
            return
        try:
            await self._check.publish()
        except PublishCheckRefused as refused:
            if not self._is_refused:
                log.warning("publish_check.refused", error=str(refused), command="dlq-handler grants")
            self._is_refused = True
            self._refused_until = monotonic_seconds() + TRY_REFUSED_AGAIN_SECONDS
            return
        self._is_refused = False
