"""Limits the tokens that one address may try. A token beyond the limit waits or is refused before it is compared.

Only wrong tokens count, and only for the address that sent them. An attacker at another address therefore cannot lock
out a valid token. Requests with a session cookie show no token and are not limited.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

import structlog
from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.clock import monotonic_seconds
from dlq_handler.logs import RepeatLimit
from dlq_handler.web.errors import ErrorAnswers

# Typing errors are answered at once.
FREE_A_MINUTE = 5
PAUSE_SECONDS = 1.0
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
        if self.is_old(now):
            self.since, self.count = now, 0
        self.count += 1

    def is_old(self, now: float) -> bool:
        return now - self.since >= 60


class GuessLimit:
    def __init__(
        self,
        errors: ErrorAnswers,
        *,
        now: Callable[[], float] = monotonic_seconds,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._errors, self._now, self._sleep = errors, now, sleep
        self._by_address: OrderedDict[str, _Guesses] = OrderedDict()
        self._repeats = RepeatLimit(now=now)

    async def refuse(self, request: Request) -> Response | None:
        """Call this before each comparison of a token. None: compare it now, without another await in between."""
        one = self._by_address.get(_address(request))
        if one is None or one.is_old(self._now()) or one.count < FREE_A_MINUTE:
            return None
        if one.waiting >= MOST_WAITING_OF_ONE:
            return self._too_many(request)
        one.waiting += 1
        try:
            await self._sleep(PAUSE_SECONDS)
        finally:
            one.waiting -= 1
        return None

    def add(self, request: Request) -> None:
        """Call this after each wrong token."""
        dropped = self._repeats.ask("token.refused")
        if dropped is not None:
            client = request.client.host if request.client else ""
            log.warning("token.refused", client=client, more=dropped)
        address, now = _address(request), self._now()
        one = self._by_address.pop(address, None) or _Guesses(now)
        self._by_address[address] = one
        one.add(now)
        if len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)

    def _too_many(self, request: Request) -> Response:
        text = f"This address sent too many wrong tokens. Try again in {RETRY_SECONDS} s."
        answer = self._errors.answer(request, 429, "Too many attempts", text)
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
        # The next guess costs a connection.
        answer.headers["Connection"] = "close"
        return answer


def _address(request: Request) -> str:
    """The client's address. Of IPv6 the network of 64 bits, because one machine can use all addresses in it."""
    host = request.client.host if request.client else ""
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(IPv6Network((found, 64), strict=False))
    return host
