"""Limits how many searches run at a time: they are slow, and other requests need a database connection too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler.surface.web.errors import RETRY_SECONDS, Refused

WAIT_SECONDS = 10.0


class SearchTurns:
    def __init__(self, most: int, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._most, self._wait_seconds = most, wait_seconds
        self._places = asyncio.Semaphore(most)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Raises `Refused` (503) when no search ends in time."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            refused = Refused(503, f"{self._most} searches are under way, which is the limit. Try again.")
            refused.headers = {"Retry-After": str(RETRY_SECONDS)}
            raise refused from None
        try:
            yield
        finally:
            self._places.release()
