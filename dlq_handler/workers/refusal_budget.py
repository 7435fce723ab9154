"""Limit the questions that the broker refuses: each leaves error lines in its log. No I/O.

Promises: at most `MAX_PER_MINUTE` refusals a minute, TTL probes and missing queues together; at most
`MAX_PER_QUEUE` about one missing queue in `KEPT_SECONDS`, far enough apart for the two checks that a decision needs.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable

MAX_PER_MINUTE = 60
# Of these, the number that is left to queues that were found before: one of them may have been deleted.
FOR_FOUND = 4
MAX_PER_QUEUE = 2
KEPT_SECONDS = 600.0


class RefusalBudget:
    def __init__(self, now: Callable[[], float], *, confirm_after_seconds: float) -> None:
        """`confirm_after_seconds`: between the two checks that a decision needs, at least."""
        self._now = now
        # Longer than the checks must be apart: the database's clock is read later than the broker answers.
        self._pause_seconds = confirm_after_seconds * 4 / 3
        self._spent_at: deque[float] = deque()
        self._by_queue: dict[str, list[float]] = {}

    @property
    def places_for_found(self) -> int:
        """The number of refusals that the limit per minute leaves room for."""
        now = self._now()
        while self._spent_at and now - self._spent_at[0] >= 60.0:
            self._spent_at.popleft()
        return max(0, MAX_PER_MINUTE - len(self._spent_at))

    @property
    def places(self) -> int:
        """The same for TTL probes and for queues that were not found before."""
        return max(0, self.places_for_found - FOR_FOUND)

    def spend(self, refusals: int) -> None:
        self._spent_at.extend([self._now()] * refusals)

    def spend_on(self, queues: Collection[str]) -> None:
        """The broker refused one question about each of these."""
        self.spend(len(queues))
        for queue in queues:
            self._by_queue.setdefault(queue, []).append(self._now())

    def due(self, queues: Iterable[str]) -> list[str]:
        """Those that may be asked about now. A second question goes first: a decision needs two checks in a row."""
        now = self._now()
        recent = {
            queue: [at for at in times if now - at < KEPT_SECONDS] for queue, times in self._by_queue.items()
        }
        self._by_queue = {queue: times for queue, times in recent.items() if times}
        due = [queue for queue in queues if self._is_due(self._by_queue.get(queue, []), now)]
        return sorted(due, key=lambda queue: (queue not in self._by_queue, queue))

    def _is_due(self, times: list[float], now: float) -> bool:
        if not times:
            return True
        return len(times) < MAX_PER_QUEUE and now - times[-1] >= self._pause_seconds
