"""Measure how late the event loop is, and log loops that no longer turn.

Something that blocks the event loop delays broker heartbeats, leases and probes alike.
"""

import asyncio

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.heartbeat import Liveness, heartbeat
from dlq_handler.loop import pause
from dlq_handler.metrics import Metrics

log = structlog.get_logger()


class LoopWatch:
    def __init__(self, metrics: Metrics, liveness: Liveness, *, interval_seconds: float = 0.5) -> None:
        self._metrics, self._liveness, self._interval_seconds = metrics, liveness, interval_seconds
        self._stalled: frozenset[str] = frozenset()

    async def run(self, stop: asyncio.Event) -> None:
        due_at = monotonic_seconds() + self._interval_seconds
        with heartbeat("loop-watch", interval_seconds=self._interval_seconds):
            while not await pause(stop, due_at - monotonic_seconds()):
                now = monotonic_seconds()
                self._metrics.loop_lag_seconds.observe(max(0.0, now - due_at))
                self._log_stalls()
                due_at = now + self._interval_seconds

    def _log_stalls(self) -> None:
        """Changes only: while a loop stands still, /healthz repeats it."""
        stalls = self._liveness.stalls()
        for stall in stalls:
            if stall.loop not in self._stalled:
                log.error(
                    "loop.stalled",
                    loop=stall.loop,
                    seconds=round(stall.seconds),
                    limit_seconds=stall.limit_seconds,
                )
        stalled = frozenset(stall.loop for stall in stalls)
        for loop in sorted(self._stalled - stalled):
            log.info("loop.turned_again", loop=loop)
        self._stalled = stalled
