"""Space costly questions by their cost: a server spends at most a small share of its time on their answers.

Used by checks that grow with the fleet. In a small fleet an answer takes milliseconds and nothing is delayed; an answer
that takes seconds is asked for every few minutes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dlq_handler.clock import monotonic_seconds

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
