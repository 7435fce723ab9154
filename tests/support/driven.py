"""A sidecar whose loops turn by a clock that the test moves: an hour of its life in seconds, and nothing left out."""

import asyncio
import heapq
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from dlq_handler import clock
from dlq_handler import loop as every_module
from dlq_handler.app import Replica
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.run import run_replica
from dlq_handler.settings import Settings
from tests.support.eventually import eventually

Tick = Callable[[], Awaitable[None]]


class DrivenSidecar:
    """Every loop of the sidecar by its name. A loop ticks as often as its interval says, in the clock's seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loops: dict[str, tuple[float, Tick]] = {}
        self.ticks = 0
        self._moved = 0.0
        self._due: list[tuple[float, int, str]] = []
        self._order = count()
        monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + self._moved))
        self._real = real = every_module.every
        for module in list(sys.modules.values()):
            if getattr(module, "every", None) is real and module.__name__.startswith("dlq_handler."):
                monkeypatch.setattr(module, "every", self._every)

    async def _every(
        self, seconds: float, tick: Tick, stop: asyncio.Event, *, name: str, **others: Any
    ) -> None:
        if seconds == 0:
            # It waits for messages, not for a time.
            await self._real(seconds, tick, stop, name=name, **others)
            return
        self.loops[name] = (seconds, tick)
        heapq.heappush(self._due, (clock.monotonic_seconds(), next(self._order), name))
        await stop.wait()

    async def live(self, seconds: float) -> None:
        """Let the sidecar live this long by its own clock."""
        end = clock.monotonic_seconds() + seconds
        while self._due[0][0] < end:
            due, _, name = heapq.heappop(self._due)
            self._moved += max(0.0, due - clock.monotonic_seconds())
            interval, tick = self.loops[name]
            self.ticks += 1
            # `every` outlives these too, and waits longer than this.
            with suppress(Unavailable, Contended):
                await tick()
            heapq.heappush(self._due, (clock.monotonic_seconds() + interval, next(self._order), name))
        self._moved += max(0.0, end - clock.monotonic_seconds())


@asynccontextmanager
async def driven_sidecar(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DrivenSidecar]:
    driven, stop = DrivenSidecar(monkeypatch), asyncio.Event()
    running = asyncio.create_task(run_replica(Replica(settings), stop))

    def is_serving() -> bool:
        if running.done():
            running.result()
        return "topology-keeper" in driven.loops and "diagnoser" in driven.loops

    try:
        await eventually(is_serving)
        yield driven
    finally:
        stop.set()
        await running
