"""Whether the dead letters that waited in the intake queue when the intake opened have been acknowledged.

Until then an execution that looks stale may have its dead letter here, which knows more about it. The state is of the
queue, as this replica sees it: messages that other consumers take count through what the broker says of the queue.
"""

import asyncio
from collections.abc import Callable

from dlq_handler.clock import monotonic_seconds


class IntakeDrain:
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
        """How long the intake has been closed or not drained; None: it is drained."""
        return None if self._undrained_since is None else self._now() - self._undrained_since

    def wake_when_drained(self, wake: asyncio.Event) -> None:
        self._wakes.append(wake)

    def opened(self, *, ready: int, prefetch: int) -> None:
        self._is_open, self._unacknowledged, self._prefetch = True, ready, prefetch
        self._was_long = ready >= prefetch
        self.acknowledged(0)

    def acknowledged(self, count: int) -> None:
        self._unacknowledged -= count
        if self._is_open and self._unacknowledged <= 0:
            self._drained()

    def counted(self, *, ready: int, outstanding: int) -> None:
        """By the broker: messages that are ready, and by this replica: messages that it holds."""
        # Messages that are taken but not acknowledged count: their executions are not decided yet.
        is_short = self._was_long and ready + outstanding < self._prefetch
        if self._is_open and (is_short or ready + outstanding == 0):
            self._drained()

    def closed(self) -> None:
        self._is_open = False
        if self._undrained_since is None:
            self._undrained_since = self._now()

    def _drained(self) -> None:
        if self._undrained_since is not None:
            self._undrained_since = None
            for wake in self._wakes:
                wake.set()
