"""Read pages of the host's tables on the leader, each page in a transaction of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.page import Page
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
