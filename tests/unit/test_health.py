"""Loops that turn, and loops that do not, with a clock of the test's own."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from starlette.types import ASGIApp

from dlq_handler import health as module
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnoser import Diagnoser, Observed
from dlq_handler.diagnosis.view import BrokerFact
from dlq_handler.errors import Unavailable
from dlq_handler.health import Liveness, Readiness, Stall, beat, beating, bounded, heartbeat, locked
from dlq_handler.loop import every, first_of
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.gate import GateCause, GateState
from dlq_handler.safety.gate_service import Gate
from dlq_handler.web.listeners import ops_app
from tests.support.eventually import eventually
from tests.support.views import NOW, a_view

OPEN = GateState(causes={})


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


def an_ops_app(readiness: Readiness, *, gate: GateState = OPEN, observed: Observed | None = None) -> ASGIApp:
    return ops_app(
        readiness,
        new_metrics(),
        cast("Gate", SimpleNamespace(state=gate)),
        cast("Diagnoser", SimpleNamespace(latest=observed)),
    )


async def readyz(app: ASGIApp) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ops") as client:
        return await client.get("/readyz")


async def healthz(liveness: Liveness) -> httpx.Response:
    app = an_ops_app(Readiness(liveness=liveness))
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


async def test_readyz_has_the_parts_the_gate_and_what_is_wrong_in_the_view() -> None:
    readiness = Readiness()
    before = (await readyz(an_ops_app(readiness))).json()
    assert (before["ready"], before["observed_at"], before["diagnoses"]) == (False, None, [])
    assert set(before["checks"]) == {"broker", "consumer", "database", "schema"}

    for part in before["checks"]:
        readiness.report(part, ok=True, detail="fine")
    closed = GateState(causes={GateCause.CLOCK_JUMP: "it jumped"}, closed_at={GateCause.CLOCK_JUMP: NOW})
    view = a_view(broker=BrokerFact(error="no route to host"))
    observed = Observed(view=view, diagnoses=diagnose(view), at=NOW, taken_at=0.0)
    answer = await readyz(an_ops_app(readiness, gate=closed, observed=observed))

    assert answer.status_code == 200, "the view makes no replica unready"
    shown = answer.json()
    assert shown["checks"]["broker"] == {"ok": True, "detail": "fine"}
    assert shown["gate"]["causes"] == {"clock_jump": "it jumped"}
    [broker] = [one for one in shown["diagnoses"] if one["check"] == "broker"]
    assert (broker["health"], "no route to host" in broker["explanation"]) == ("problem", True)
    assert "ok" not in {one["health"] for one in shown["diagnoses"]}


def test_a_part_that_becomes_ready_or_unready_wakes_who_waits_and_a_repetition_does_not() -> None:
    readiness, wake, woken = Readiness(), asyncio.Event(), []
    readiness.wake_when_changed(wake)
    for ok in (False, True, True, False):
        readiness.report("broker", ok=ok, detail="as it is")
        woken.append(wake.is_set())
        wake.clear()
    assert woken == [False, True, False, True]
