"""Track whether the dead letters that were ready when the intake opened have been acknowledged.

Until then an execution that looks stale may have a dead letter in the queue, which is better evidence. Messages that
other consumers take are known from the broker's count of the queue.
"""

import asyncio
from collections.abc import Callable

from dlq_handler.clock import monotonic_seconds


class DrainTracker:
    def __init__(self, now: Callable[[], float] = monotonic_seconds) -> None:
        self._now = now
        self._undrained_since: float | None = now()
        self._is_open = False
        self._unacknowledged = 0
        self._prefetch = 0
        self._was_long = False
        self._wakes: list[asyncio.Event] = []

    @property
    def undrained_seconds(self) -> float | None:
        """Time since the intake was last drained; None: it is drained now."""
        return None if self._undrained_since is None else self._now() - self._undrained_since

    def wake_when_drained(self, wake: asyncio.Event) -> None:
        self._wakes.append(wake)

    def note_opened(self, *, ready: int, prefetch: int) -> None:
        self._is_open, self._unacknowledged, self._prefetch = True, ready, prefetch
        self._was_long = ready >= prefetch
        self.note_acknowledged(0)

    def note_acknowledged(self, count: int) -> None:
        self._unacknowledged -= count
        if self._is_open and self._unacknowledged <= 0:
            self._note_drained()

    def note_counted(self, *, ready: int, outstanding: int) -> None:
        """`ready`: the broker's count of the queue. `outstanding`: unacknowledged deliveries of this replica."""
        # Unacknowledged deliveries count too: their executions are not decided yet.
        is_short = self._was_long and ready + outstanding < self._prefetch
        if self._is_open and (is_short or ready + outstanding == 0):
            self._note_drained()

    def note_closed(self) -> None:
        self._is_open = False
        if self._undrained_since is None:
            self._undrained_since = self._now()

    def _note_drained(self) -> None:
        if self._undrained_since is not None:
            self._undrained_since = None
            for wake in self._wakes:
                wake.set()
