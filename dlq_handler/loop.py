"""Run a tick again and again until `stop` is set. The only place that may outlive any exception.

A tick that meets `Unavailable` or `Contended` is tried again after a growing, jittered pause. Any other exception is a
bug: it is logged with its trace, and the loop goes on. A `CancelledError` that a library raised by itself is one too.
A requested stop ends the loop, also where code within the tick turned its `CancelledError` into something else.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.health import Liveness, beat, beating, heartbeat
from dlq_handler.metrics import Metrics
from dlq_handler.tasks import StopCheck

log = structlog.get_logger()

# A polled value is stale after this many missed polls.
MISSED_POLLS = 5


@dataclass(slots=True)
class Backoff:
    """Pauses that double from `first_seconds` to `most_seconds`, each cut by up to half so that replicas spread out."""

    first_seconds: float = 0.5
    most_seconds: float = 15.0
    failures: int = 0

    def next_seconds(self) -> float:
        pause = min(self.first_seconds * 2.0 ** min(self.failures, 20), self.most_seconds)
        self.failures += 1
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.failures = 0


async def pause(stop: asyncio.Event, seconds: float, wake: asyncio.Event | None = None) -> bool:
    """Wait, but not beyond `stop` nor, where given, `wake` (which is cleared). True when it is time to stop."""
    await first_of(stop, wake or stop, seconds)
    if wake is not None:
        wake.clear()
    return stop.is_set()


async def every(
    seconds: float,
    tick: Callable[[], Awaitable[None]],
    stop: asyncio.Event,
    *,
    name: str,
    wake: asyncio.Event | None = None,
) -> None:
    """Tick at once, then `seconds` after the end of each tick (sooner when woken), until `stop` is set."""
    with heartbeat(name, interval_seconds=seconds):
        backoff, cancelled = Backoff(), StopCheck()
        while not stop.is_set():
            beat()
            try:
                await tick()
            except (Unavailable, Contended) as error:
                if backoff.failures == 0:
                    # A table that the host has locked, for a migration of its own, is no bug of dlq-handler either.
                    component, what = (
                        (error.component, error.what)
                        if isinstance(error, Unavailable)
                        else ("database", str(error))
                    )
                    log.warning("loop.interrupted", loop=name, component=component, error=what)
                wait = max(seconds, backoff.next_seconds())
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and cancelled.is_stop:
                    raise
                log.exception("loop.crashed", loop=name)
                wait = max(seconds, backoff.next_seconds())
            else:
                if backoff.failures:
                    log.info("loop.resumed", loop=name)
                backoff.reset()
                wait = seconds
            if cancelled.is_stop:
                raise asyncio.CancelledError
            # While a server does not answer, nothing may wake the loop early: backoff prevents a hot loop.
            if await pause(stop, wait, wake if backoff.failures == 0 else None):
                return


async def first_of(one: asyncio.Event, other: asyncio.Event, seconds: float | None = None) -> None:
    """Return when either is set, or the time is over; which it was, the events tell. A loop that waits here turns."""
    waits = [asyncio.ensure_future(one.wait()), asyncio.ensure_future(other.wait())]
    try:
        with beating():
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class Service(Protocol):
    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, end the work in hand, return. Never raises for a server that does not answer."""


class LoopWatch:
    """Measures how late the event loop is, and logs loops that no longer turn.

    A call that blocks the event loop delays broker heartbeats, leases and probes alike.
    """

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
            log.info("loop.recovered", loop=loop)
        self._stalled = stalled


SHARE = 0.02
MOST_SECONDS = 300.0


def pause_after(seconds: float, *, most_seconds: float = MOST_SECONDS) -> float:
    """Pause after an answer that took this long."""
    return min(most_seconds, seconds / SHARE)


class Pace:
    def __init__(
        self, *, most_seconds: float = MOST_SECONDS, now: Callable[[], float] = monotonic_seconds
    ) -> None:
        self._most_seconds, self._now = most_seconds, now
        self._due_at = float("-inf")

    @property
    def is_due(self) -> bool:
        return self._now() >= self._due_at

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Wrap the question. One that fails has its cost too: a server that is too slow must not be asked at once."""
        began = self._now()
        try:
            yield
        finally:
            self._due_at = self._now() + pause_after(self._now() - began, most_seconds=self._most_seconds)
