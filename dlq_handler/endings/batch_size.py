"""How many items one transaction takes. Pure.

Two things make it smaller. A database that is too slow halves the size; the size that worked is kept, and doubles again
only after some transactions in a row that were quick enough to do twice as much. An item that the database refuses is
found by halving too: after the half that succeeds comes the half that has it. When it is found, each transaction that
succeeds doubles the size again.
"""

# Full transactions in a row, each within this part of the time limit, before the size doubles.
QUICK_IN_A_ROW = 3
QUICK_PART = 1 / 3

# Transactions in a row that succeed after a refusal: then the refused item is found, or the refusal was a passing one.
FOUND = 2


class BatchSize:
    def __init__(self, most: int, *, limit_seconds: float) -> None:
        """`limit_seconds`: the configured limit. A transaction may be cancelled long before it, by an administrator."""
        self.most = most
        self._limit_seconds = limit_seconds
        self._not_too_slow = self._isolating = most
        self._quick = 0
        self._passed = FOUND

    @property
    def now(self) -> int:
        return min(self._not_too_slow, self._isolating)

    def too_slow(self, count: int) -> None:
        """A transaction over this many items exceeded its time limit."""
        self._not_too_slow = min(self._not_too_slow, max(1, count // 2))
        self._quick = 0

    def refused(self, count: int) -> None:
        """The database refused one of this many items."""
        self._isolating = max(1, count // 2)
        self._passed = FOUND if count == 1 else 0

    def done(self, count: int, seconds: float) -> None:
        self._passed += 1
        if self._passed >= FOUND:
            self._isolating = min(self.most, 2 * self._isolating)
        if self._not_too_slow >= self.most or count < self._not_too_slow:
            return
        self._quick = self._quick + 1 if seconds <= self._limit_seconds * QUICK_PART else 0
        if self._quick >= QUICK_IN_A_ROW:
            self._not_too_slow = min(self.most, self._not_too_slow * 2)
            self._quick = 0
