"""Limit the questions that the broker refuses: each leaves error lines in its log. No I/O.

Promises: at most `per_minute` refusals a minute, TTL probes and missing queues together; at most `per_queue` about one
missing queue in `kept_seconds`, far enough apart for the two looks that a decision needs.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalPolicy:
    per_minute: int = 60
    for_found: int = 4
    """Of these, the number that is left to queues that were found before: one of them may have been deleted."""
    per_queue: int = 2
    kept_seconds: float = 600.0
    confirm_after_seconds: float = 30.0
    """Minimum number of seconds between the two looks that a decision needs."""

    @property
    def pause_seconds(self) -> float:
        """Longer than the looks must be apart: the database's clock is read later than the broker answers."""
        return self.confirm_after_seconds * 4 / 3


class RefusalBudget:
    def __init__(self, policy: RefusalPolicy, now: Callable[[], float]) -> None:
        self._policy, self._now = policy, now
        self._spent_at: deque[float] = deque()
        self._by_queue: dict[str, list[float]] = {}

    @property
    def places_for_found(self) -> int:
        """The number of refusals that the limit per minute leaves room for."""
        now = self._now()
        while self._spent_at and now - self._spent_at[0] >= 60.0:
            self._spent_at.popleft()
        return max(0, self._policy.per_minute - len(self._spent_at))

    @property
    def places(self) -> int:
        """The same for TTL probes and for queues that were not found before."""
        return max(0, self.places_for_found - self._policy.for_found)

    def spend(self, refusals: int) -> None:
        self._spent_at.extend([self._now()] * refusals)

    def spend_on(self, queues: Collection[str]) -> None:
        """The broker refused one question about each of these."""
        self.spend(len(queues))
        for queue in queues:
            self._by_queue.setdefault(queue, []).append(self._now())

    def due(self, queues: Iterable[str]) -> list[str]:
        """Those that may be asked about now. A second question goes first: a decision needs two looks in a row."""
        now, policy = self._now(), self._policy
        recent = {
            queue: [at for at in times if now - at < policy.kept_seconds]
            for queue, times in self._by_queue.items()
        }
        self._by_queue = {queue: times for queue, times in recent.items() if times}
        due = [queue for queue in queues if self._is_due(self._by_queue.get(queue, []), now)]
        return sorted(due, key=lambda queue: (queue not in self._by_queue, queue))

    def _is_due(self, times: list[float], now: float) -> bool:
        if not times:
            return True
        return len(times) < self._policy.per_queue and now - times[-1] >= self._policy.pause_seconds
