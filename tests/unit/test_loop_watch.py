"""The lag of an event loop that is blocked."""

import asyncio
import time

from structlog.testing import capture_logs

from dlq_handler.health import Liveness, beat, heartbeat
from dlq_handler.loop import LoopWatch
from dlq_handler.metrics import Metrics
from dlq_handler.rooms import new_metrics
from tests.support.eventually import eventually


def lags(metrics: Metrics, **labels: str) -> float:
    """Number of lags that were measured, of at most `le` seconds if given."""
    name = "dlq_handler_loop_lag_seconds_" + ("bucket" if labels else "count")
    return metrics.registry.get_sample_value(name, labels) or 0


async def test_a_blocked_loop_counts_as_late_by_how_long_it_was_blocked() -> None:
    metrics, stop = new_metrics(), asyncio.Event()
    watching = asyncio.create_task(LoopWatch(metrics, Liveness(), interval_seconds=0.01).run(stop))
    await eventually(lambda: lags(metrics))
    before = lags(metrics)
    time.sleep(0.2)  # noqa: ASYNC251 (the fault that is looked for)
    await eventually(lambda: lags(metrics) > before)
    stop.set()
    await watching
    assert lags(metrics) > lags(metrics, le="0.1"), "longer than 0.1 s"


async def test_a_loop_that_stalls_is_logged_once_and_again_when_it_turns() -> None:
    now, stop = [0.0], asyncio.Event()
    liveness, metrics = Liveness(lambda: now[0]), new_metrics()

    async def work() -> None:
        liveness.watch()
        watch = LoopWatch(metrics, liveness, interval_seconds=0.001)
        watching = asyncio.create_task(watch.run(stop))
        with heartbeat("gate"), capture_logs() as logs:
            now[0] = 121.0
            await eventually(lambda: logs)
            await eventually(lambda: lags(metrics) > 5)
            beat()
            await eventually(lambda: len(logs) > 1)
            stop.set()
            await watching
        assert [(line["event"], line["loop"], line["log_level"]) for line in logs] == [
            ("loop.stalled", "gate", "error"),
            ("loop.recovered", "gate", "info"),
        ]

    await asyncio.create_task(work())
