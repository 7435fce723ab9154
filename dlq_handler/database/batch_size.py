"""How many rows one transaction takes, on a database that may be slow. Pure.

A transaction that exceeds its time limit halves the size. The size that worked is kept, and doubles again only after
some transactions in a row that were quick enough to do twice as much.
"""

# Full transactions in a row, each within this part of the time limit, before the size doubles.
QUICK_IN_A_ROW = 3
QUICK_PART = 1 / 3


class BatchSize:
    def __init__(self, most: int, *, limit_seconds: float) -> None:
        """`limit_seconds`: the configured limit. A transaction may be cancelled long before it, by an administrator."""
        self.most = most
        self.now = most
        self._limit_seconds = limit_seconds
        self._quick = 0

    def too_slow(self, count: int) -> None:
        """A transaction over so many rows exceeded its time limit."""
        self.now = min(self.now, max(1, count // 2))
        self._quick = 0

    def done(self, count: int, seconds: float) -> None:
        if self.now >= self.most or count < self.now:
            return
        self._quick = self._quick + 1 if seconds <= self._limit_seconds * QUICK_PART else 0
        if self._quick >= QUICK_IN_A_ROW:
            self.now = min(self.most, self.now * 2)
            self._quick = 0
