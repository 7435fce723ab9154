"""The lag of the event loop, with a loop that somebody blocks."""

import asyncio
import time

from dlq_handler.services.loop_watch import LoopWatch
from dlq_handler.services.observer import Observer


class Heard(Observer):
    def __init__(self) -> None:
        self.lags: list[float] = []
        self.has_heard = asyncio.Event()

    def loop_lagged(self, seconds: float) -> None:
        self.lags.append(seconds)
        self.has_heard.set()


async def test_a_blocked_loop_is_told_of_by_how_long_it_was_blocked() -> None:
    heard, stop = Heard(), asyncio.Event()
    watching = asyncio.create_task(LoopWatch(heard, interval_seconds=0.01).run(stop))
    await heard.has_heard.wait()
    heard.has_heard.clear()
    time.sleep(0.2)  # noqa: ASYNC251 (the fault that is looked for)
    await heard.has_heard.wait()
    stop.set()
    await watching
    assert max(heard.lags) > 0.15
    assert min(heard.lags) >= 0
