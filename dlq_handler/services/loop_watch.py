"""Measure how late the event loop is: something that blocks it delays heartbeats, leases and probes alike."""

import asyncio

from dlq_handler.clock import monotonic_seconds
from dlq_handler.services.every import pause
from dlq_handler.services.observer import Observer


class LoopWatch:
    def __init__(self, observer: Observer, *, interval_seconds: float = 0.5) -> None:
        self._observer, self._interval_seconds = observer, interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        due_at = monotonic_seconds() + self._interval_seconds
        while not await pause(stop, due_at - monotonic_seconds()):
            now = monotonic_seconds()
            self._observer.loop_lagged(max(0.0, now - due_at))
            due_at = now + self._interval_seconds
