"""Loops survive errors, never spin, and stop when asked."""

import asyncio

import pytest

from dlq_handler.errors import Unavailable
from dlq_handler.loop import Backoff, every, pause


async def test_a_loop_outlives_a_bug_and_a_server_that_is_away() -> None:
    stop = asyncio.Event()
    seen: list[int] = []

    async def tick() -> None:
        seen.append(len(seen))
        if len(seen) == 1:
            raise Unavailable("database", "away")
        if len(seen) == 2:
            raise ValueError("a bug")
        stop.set()

    async with asyncio.timeout(20):
        await every(0.0, tick, stop, name="test")
    assert seen == [0, 1, 2]


async def test_cancelling_a_loop_ends_it() -> None:
    async def tick() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(every(0.0, tick, asyncio.Event(), name="test"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("error", [None, Unavailable("database", "away"), ValueError("a bug")])
async def test_a_loop_ends_although_its_tick_swallows_the_cancellation(error: Exception | None) -> None:
    stop, ticks = asyncio.Event(), 0

    async def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks > 1:
            stop.set()
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error is not None:
                raise error from None

    task = asyncio.create_task(every(0.0, tick, stop, name="test"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ticks == 1


async def test_a_loop_outlives_a_call_that_a_library_cancelled() -> None:
    stop, ticks = asyncio.Event(), 0

    async def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 1:
            raise asyncio.CancelledError
        stop.set()

    async with asyncio.timeout(20):
        await every(0.0, tick, stop, name="test")
    assert ticks == 2


async def test_a_woken_loop_ticks_at_once() -> None:
    stop, wake, ticks = asyncio.Event(), asyncio.Event(), 0

    async def tick() -> None:
        nonlocal ticks
        ticks += 1
        (stop if ticks == 3 else wake).set()

    async with asyncio.timeout(20):
        await every(3600, tick, stop, name="test", wake=wake)
    assert ticks == 3


async def test_a_failing_loop_cannot_be_woken_into_a_hot_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, wake, waits = asyncio.Event(), asyncio.Event(), []

    async def tick() -> None:
        wake.set()
        raise Unavailable("broker", "away")

    async def noted(_: asyncio.Event, seconds: float, woken_by: asyncio.Event | None = None) -> bool:
        waits.append((seconds, woken_by))
        return len(waits) == 5

    monkeypatch.setattr("dlq_handler.loop.pause", noted)
    await every(0.0, tick, stop, name="test", wake=wake)
    assert all(seconds > 0 and woken_by is None for seconds, woken_by in waits)


async def test_pause_ends_with_stop() -> None:
    stop = asyncio.Event()
    stop.set()
    async with asyncio.timeout(20):
        assert await pause(stop, 3600)
        assert not await pause(asyncio.Event(), 0.001)


def test_backoff_grows_to_its_limit_and_starts_anew_after_reset() -> None:
    backoff = Backoff(first_seconds=1, most_seconds=8)
    pauses = [backoff.next_seconds() for _ in range(40)]
    assert all(0.5 <= seconds <= 8 for seconds in pauses)
    assert min(pauses[4:]) >= 4
    backoff.reset()
    assert backoff.next_seconds() <= 1
