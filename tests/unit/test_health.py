"""Loops that turn, and loops that do not, with a clock of the test's own."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from dlq_handler import health as module
from dlq_handler.errors import Unavailable
from dlq_handler.health import Liveness, Readiness, Stall, beat, beating, bounded, heartbeat, locked
from dlq_handler.loop import every, first_of
from dlq_handler.rooms import new_metrics
from dlq_handler.web.listeners import ops_app
from tests.support.eventually import eventually


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def liveness(clock: Clock) -> Liveness:
    return Liveness(clock)


@pytest.fixture
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)


async def beats_pass(beats: int) -> None:
    """Let the event loop run for the time of this many beats, and through every timer that was due by then."""
    passed, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.call_later(beats * module.BEAT_SECONDS, passed.set)
    await passed.wait()


async def healthz(liveness: Liveness) -> httpx.Response:
    app = ops_app(Readiness(liveness=liveness), new_metrics())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ops") as client:
        return await client.get("/healthz")


class Watched:
    """A task in which loops are watched; it is over at the end of the block."""

    def __init__(self, liveness: Liveness, work: Callable[[], Awaitable[None]]) -> None:
        self._liveness, self._work = liveness, work

    async def __aenter__(self) -> None:
        async def run() -> None:
            self._liveness.watch()
            await self._work()

        self._task = asyncio.create_task(run())
        await eventually(lambda: self._liveness.loops or self._task.done())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_before_serving_begins_it_is_alive(liveness: Liveness, clock: Clock) -> None:
    clock.now += 1e6
    answer = await healthz(liveness)
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


@pytest.mark.parametrize(("interval", "limit"), [(2.0, 120.0), (60.0, 300.0)])
async def test_a_loop_that_hangs_fails_healthz_which_names_it(
    liveness: Liveness, clock: Clock, interval: float, limit: float
) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async with Watched(liveness, lambda: every(interval, hang, asyncio.Event(), name="gate")):
        clock.now += limit
        assert (await healthz(liveness)).status_code == 200
        clock.now += 1
        answer = await healthz(liveness)
        assert answer.status_code == 503
        assert answer.json() == {
            "status": "stalled",
            "loops": [{"loop": "gate", "seconds": limit + 1, "limit_seconds": limit}],
        }
    assert liveness.loops == []


@pytest.mark.usefixtures("quick_beats")
async def test_idle_paused_and_backing_off_count_as_turning(liveness: Liveness, clock: Clock) -> None:
    async def nothing() -> None: ...

    async def away() -> None:
        raise Unavailable("database", "away")

    async def idle() -> None:
        await first_of(asyncio.Event(), asyncio.Event())

    for tick in (nothing, away, idle):
        loop = every(3600, tick, asyncio.Event(), name="idle")
        async with Watched(liveness, lambda loop=loop: loop):  # type: ignore[misc]  # bound on purpose
            for _ in range(3):
                clock.now += 1e6
                await eventually(lambda: liveness.stalls() == [])


@pytest.mark.usefixtures("quick_beats")
async def test_a_call_counts_as_turning_up_to_its_own_bound(liveness: Liveness, clock: Clock) -> None:
    over = asyncio.Event()

    async def work() -> None:
        with heartbeat("relay"), beating(0.05):
            await over.wait()

    async with Watched(liveness, work):
        clock.now += 1e6
        await eventually(lambda: liveness.stalls() == [])
        await beats_pass(10)  # The bound itself, by the event loop's clock.
        clock.now += 121
        # A beat that is still due would hide the stall.
        await beats_pass(5)
        assert liveness.stalls() == [Stall(loop="relay", seconds=121.0, limit_seconds=120.0)]
        over.set()


async def test_a_bounded_call_ends_in_time() -> None:
    with pytest.raises(TimeoutError):
        async with bounded(0.001):
            await asyncio.Event().wait()
    limit = asyncio.timeout(0.001)
    with pytest.raises(TimeoutError):
        async with bounded(0.001, limit):
            await asyncio.Event().wait()
    assert limit.expired()


@pytest.mark.usefixtures("quick_beats")
async def test_a_batch_that_hangs_does_not_hide_behind_one_that_waits(
    liveness: Liveness, clock: Clock
) -> None:
    lock = asyncio.Lock()

    async def hang() -> None:
        with heartbeat("batch 0"):
            async with locked(lock):
                await asyncio.Event().wait()

    async def wait() -> None:
        with heartbeat("batch 1"):
            async with locked(lock, at_most_seconds=None):
                pass

    async def work() -> None:
        with heartbeat("intake"):
            await asyncio.gather(hang(), wait())

    async with Watched(liveness, work):
        await eventually(lambda: len(liveness.loops) == 3)
        clock.now += 121
        await eventually(lambda: [stall.loop for stall in liveness.stalls()] == ["batch 0"])


async def test_a_beat_is_of_the_loop_that_the_code_works_for(liveness: Liveness, clock: Clock) -> None:
    beaten = asyncio.Event()

    async def deep_below() -> None:
        await beaten.wait()
        beat()
        await asyncio.Event().wait()

    async def one(name: str, work: Callable[[], Awaitable[None]]) -> None:
        with heartbeat(name):
            await asyncio.create_task(work())  # type: ignore[arg-type]  # a coroutine function

    async def both() -> None:
        await asyncio.gather(one("turns", deep_below), one("hangs", asyncio.Event().wait))  # type: ignore[arg-type]

    async with Watched(liveness, both):
        await eventually(lambda: len(liveness.loops) == 2)
        clock.now += 121
        assert {stall.loop for stall in liveness.stalls()} == {"turns", "hangs"}
        beaten.set()
        await eventually(lambda: [stall.loop for stall in liveness.stalls()] == ["hangs"])


async def test_where_nothing_watches_a_heartbeat_does_nothing() -> None:
    with heartbeat("command"), beating(1):
        beat()
