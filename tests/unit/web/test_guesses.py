"""Wrong tokens are limited by address before they are compared, with few that wait."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.web.errors import ErrorAnswers
from dlq_handler.web.users import FREE_A_MINUTE, MOST_ADDRESSES, MOST_WAITING_OF_ONE, GuessLimit


def no_page(_request: Request, _status: int, _title: str, _text: str) -> Response:
    raise AssertionError("the API answers with JSON")


class Guessing:
    def __init__(self) -> None:
        self.now, self.wake = 0.0, asyncio.Event()
        self.limit = GuessLimit(ErrorAnswers(no_page), now=lambda: self.now, sleep=self._sleep)
        self.waiting = 0
        self.compared = 0

    async def _sleep(self, _seconds: float) -> None:
        self.waiting += 1
        await self.wake.wait()

    async def guess(self, address: str = "203.0.113.7", *, is_right: bool = False) -> int | None:
        """The status of a refusal; None: the token was compared."""
        scope = {"type": "http", "headers": [], "path": "/api/v1/letters", "client": (address, 1)}
        scope |= {"query_string": b"", "server": ("x", 1), "scheme": "http", "method": "GET"}
        request = Request(scope)
        refused = await self.limit.refuse(request)
        if refused is not None:
            return refused.status_code
        self.compared += 1
        if not is_right:
            self.limit.add(request)
        return None

    async def end(self, tasks: list[asyncio.Task[int | None]]) -> list[int | None]:
        self.wake.set()
        return list(await asyncio.gather(*tasks))


async def test_typing_errors_are_answered_at_once() -> None:
    it = Guessing()
    assert [await it.guess() for _ in range(FREE_A_MINUTE)] == [None] * FREE_A_MINUTE
    assert it.waiting == 0


async def test_of_one_address_few_wait_and_the_others_are_refused_before_they_are_compared() -> None:
    it = Guessing()
    tasks = [asyncio.create_task(it.guess()) for _ in range(100)]
    await asyncio.sleep(0)
    assert (it.waiting, it.compared) == (MOST_WAITING_OF_ONE, FREE_A_MINUTE)
    statuses = await it.end(tasks)
    assert statuses.count(429) == 100 - FREE_A_MINUTE - MOST_WAITING_OF_ONE
    assert it.compared == FREE_A_MINUTE + MOST_WAITING_OF_ONE


async def test_a_valid_token_shares_the_limit_of_its_address_and_of_no_other() -> None:
    it = Guessing()
    tasks = [asyncio.create_task(it.guess()) for _ in range(100)]
    others = [asyncio.create_task(it.guess(f"198.51.100.{number}")) for number in range(200)]
    await asyncio.sleep(0)
    assert await it.guess(is_right=True) == 429
    assert await it.guess("192.0.2.1", is_right=True) is None
    await it.end(tasks + others)


async def test_valid_tokens_do_not_count() -> None:
    it = Guessing()
    assert [await it.guess(is_right=True) for _ in range(100)] == [None] * 100
    assert it.waiting == 0


async def test_a_network_of_ipv6_is_one_address() -> None:
    it = Guessing()
    for number in range(FREE_A_MINUTE):
        assert await it.guess(f"2001:db8::{number:x}") is None
    tasks = [asyncio.create_task(it.guess(f"2001:db8::1:{number:x}")) for number in range(10)]
    await asyncio.sleep(0)
    assert it.waiting == MOST_WAITING_OF_ONE
    assert await it.guess("2001:db8:0:1::1") is None
    await it.end(tasks)


async def test_after_a_minute_it_is_forgotten() -> None:
    it = Guessing()
    it.wake.set()
    for _ in range(100):
        await it.guess()
    it.now = 61
    it.waiting = 0
    assert await it.guess() is None
    assert it.waiting == 0


async def test_addresses_do_not_fill_memory() -> None:
    it = Guessing()
    it.wake.set()
    for number in range(MOST_ADDRESSES + 100):
        await it.guess(str(number))
    assert len(it.limit._by_address) == MOST_ADDRESSES
