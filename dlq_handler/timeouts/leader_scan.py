"""What the scans of the leader share: pages of the host's tables, each in a transaction of its own, and the time for
which a queue has been empty with a consumer. The timeout monitor is no user of it: it reads its pages itself.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import Page
from dlq_handler.safety.gate_service import Gate

Found = TypeVar("Found")
Key = TypeVar("Key")


class ScanInterrupted(Exception):
    """The process stops, or another replica leads: the next scan begins again."""


class LeaderScan:
    """What every scan of the leader needs."""

    def __init__(self, database: Database, leadership: Leadership, gate: Gate) -> None:
        self.database, self.leadership, self.gate = database, leadership, gate
        self.stop = asyncio.Event()

    def check(self) -> None:
        """To be called before each page: there may be thousands. Raises `ScanInterrupted` or `GateClosed`."""
        self.gate.check()
        if not self.leadership.is_leader or self.stop.is_set():
            raise ScanInterrupted

    async def pages(
        self, read: Callable[[Transaction, Key], Awaitable[Page[Found, Key]]], start: Key
    ) -> AsyncIterator[Sequence[Found]]:
        place: Key | None = start
        while place is not None:
            self.check()
            async with self.database.transaction() as tx:
                page = await read(tx, place)
            yield page.found
            place = page.last


# Often enough to notice a queue that fills, and cheap.
CHECK_SECONDS = 10.0

# After this many late or failed checks the time between two checks counts as not observed.
MISSED_CHECKS = 3


class QuietTime:
    """How long a queue was empty, with a consumer, at every check. A gap between two checks ends it."""

    def __init__(self, check_seconds: float) -> None:
        self._longest_gap = MISSED_CHECKS * check_seconds
        self._since: float | None = None
        self._last = 0.0

    def note(self, counts: QueueCounts | None, at: float) -> None:
        """`counts` None: there is no such queue, or that is unknown."""
        is_quiet = counts is not None and counts.consumers > 0 and counts.ready == 0
        is_gap = at - self._last > self._longest_gap
        self._since = (at if self._since is None or is_gap else self._since) if is_quiet else None
        self._last = at

    def restart(self) -> None:
        """A message was published to the queue: only later checks count."""
        self._since = None

    @property
    def seconds(self) -> float | None:
        return None if self._since is None else self._last - self._since
