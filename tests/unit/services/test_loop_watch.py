"""The lag of the event loop, with a loop that somebody blocks."""

import asyncio
import time

from structlog.testing import capture_logs

from dlq_handler.heartbeat import Liveness, beat, heartbeat
from dlq_handler.services.loop_watch import LoopWatch
from dlq_handler.services.observer import Observer
from tests.support.eventually import eventually


class Heard(Observer):
    def __init__(self) -> None:
        self.lags: list[float] = []
        self.has_heard = asyncio.Event()

    def loop_lagged(self, seconds: float) -> None:
        self.lags.append(seconds)
        self.has_heard.set()


async def test_a_blocked_loop_is_told_of_by_how_long_it_was_blocked() -> None:
    heard, stop = Heard(), asyncio.Event()
    watching = asyncio.create_task(LoopWatch(heard, Liveness(), interval_seconds=0.01).run(stop))
    await heard.has_heard.wait()
    heard.has_heard.clear()
    time.sleep(0.2)  # noqa: ASYNC251 (the fault that is looked for)
    await heard.has_heard.wait()
    stop.set()
    await watching
    assert max(heard.lags) > 0.15
    assert min(heard.lags) >= 0


async def test_a_loop_that_stalls_is_logged_once_and_again_when_it_turns() -> None:
    now, stop = [0.0], asyncio.Event()
    liveness, heard = Liveness(lambda: now[0]), Heard()

    async def work() -> None:
        liveness.watch()
        watch = LoopWatch(heard, liveness, interval_seconds=0.001)
        watching = asyncio.create_task(watch.run(stop))
        with heartbeat("gate"), capture_logs() as logs:
            now[0] = 121.0
            await eventually(lambda: logs)
            await eventually(lambda: len(heard.lags) > 5)
            beat()
            await eventually(lambda: len(logs) > 1)
            stop.set()
            await watching
        assert [(line["event"], line["loop"], line["log_level"]) for line in logs] == [
            ("loop.stalled", "gate", "error"),
            ("loop.turned_again", "gate", "info"),
        ]

    await asyncio.create_task(work())
