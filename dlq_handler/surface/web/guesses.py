"""Wrong tokens are answered slowly, and beyond that refused; a right one is neither delayed nor refused.

An attacker who could use up somebody's attempts could keep that token out, so every token is compared. What is limited
are the answers: by address and in all, with few requests that wait, so that waiting takes no places from others.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.clock import monotonic_seconds
from dlq_handler.logs import RepeatLimit
from dlq_handler.surface.web.errors import refusal

# Typing errors are answered at once.
FREE_A_MINUTE = 5
FREE_OF_ALL_A_MINUTE = 60
PAUSE_SECONDS = 1.0
MOST_WAITING = 16
MOST_WAITING_OF_ONE = 2
RETRY_SECONDS = 60
# Addresses that are remembered.
MOST_ADDRESSES = 10_000

log = structlog.get_logger()


@dataclass(slots=True)
class _Guesses:
    since: float
    count: int = 0
    waiting: int = 0

    def add(self, now: float) -> None:
        if now - self.since >= 60:
            self.since, self.count = now, 0
        self.count += 1


class GuessLimit:
    def __init__(
        self,
        *,
        now: Callable[[], float] = monotonic_seconds,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now, self._sleep = now, sleep
        self._all = _Guesses(now())
        self._by_address: OrderedDict[str, _Guesses] = OrderedDict()
        self._repeats = RepeatLimit(now=now)

    async def refuse(self, request: Request) -> Response | None:
        """To be called after each wrong token. None: answer as usual; the pause is over."""
        address = request.client.host if request.client else ""
        dropped = self._repeats.ask("token.refused")
        if dropped is not None:
            log.warning("token.refused", client=address, more=dropped)
        now, one = self._now(), self._guesses_of(address)
        one.add(now)
        self._all.add(now)
        if one.count <= FREE_A_MINUTE and self._all.count <= FREE_OF_ALL_A_MINUTE:
            return None
        if one.waiting >= MOST_WAITING_OF_ONE or self._all.waiting >= MOST_WAITING:
            return _too_many(request)
        for each in (one, self._all):
            each.waiting += 1
        try:
            await self._sleep(PAUSE_SECONDS)
        finally:
            for each in (one, self._all):
                each.waiting -= 1
        return None

    def _guesses_of(self, address: str) -> _Guesses:
        one = self._by_address.pop(address, None) or _Guesses(self._now())
        self._by_address[address] = one
        if len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)
        return one


def _too_many(request: Request) -> Response:
    text = f"Too many wrong tokens came from this address. Try again in {RETRY_SECONDS} s; a right token is accepted."
    answer = refusal(request, 429, "Too many attempts", text)
    answer.headers["Retry-After"] = str(RETRY_SECONDS)
    # The next guess costs a connection.
    answer.headers["Connection"] = "close"
    return answer
