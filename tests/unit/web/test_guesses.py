"""Wrong tokens are slowed down by address and in all, with few that wait."""

import asyncio

from starlette.requests import Request

from dlq_handler.surface.web.guesses import (
    FREE_A_MINUTE,
    FREE_OF_ALL_A_MINUTE,
    MOST_ADDRESSES,
    MOST_WAITING,
    MOST_WAITING_OF_ONE,
    GuessLimit,
)


class Guessing:
    def __init__(self) -> None:
        self.now, self.wake = 0.0, asyncio.Event()
        self.limit = GuessLimit(now=lambda: self.now, sleep=self._sleep)
        self.waiting = 0

    async def _sleep(self, _seconds: float) -> None:
        self.waiting += 1
        await self.wake.wait()

    async def guess(self, address: str = "203.0.113.7") -> int | None:
        """The status of a refusal; None: answered as usual."""
        scope = {"type": "http", "headers": [], "path": "/api/v1/letters", "client": (address, 1)}
        scope |= {"query_string": b"", "server": ("x", 1), "scheme": "http", "method": "GET"}
        refused = await self.limit.refuse(Request(scope))
        return None if refused is None else refused.status_code

    async def end(self, tasks: list[asyncio.Task[int | None]]) -> list[int | None]:
        self.wake.set()
        return list(await asyncio.gather(*tasks))


async def test_typing_errors_are_answered_at_once() -> None:
    it = Guessing()
    assert [await it.guess() for _ in range(FREE_A_MINUTE)] == [None] * FREE_A_MINUTE
    assert it.waiting == 0


async def test_of_one_address_few_wait_and_the_others_are_refused() -> None:
    it = Guessing()
    tasks = [asyncio.create_task(it.guess()) for _ in range(100)]
    await asyncio.sleep(0)
    assert it.waiting == MOST_WAITING_OF_ONE
    statuses = await it.end(tasks)
    assert statuses.count(429) == 100 - FREE_A_MINUTE - MOST_WAITING_OF_ONE


async def test_of_many_addresses_few_wait_too() -> None:
    it = Guessing()
    tasks = [asyncio.create_task(it.guess(f"203.0.113.{number}")) for number in range(200)]
    await asyncio.sleep(0)
    assert it.waiting == MOST_WAITING
    statuses = await it.end(tasks)
    assert statuses.count(429) == 200 - FREE_OF_ALL_A_MINUTE - MOST_WAITING


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
