"""The timeout monitor: what a tick costs when nothing is stale, and how quickly many stale executions are ended.

An idle tick is timed on databases of different sizes in turn, so that a busy moment of the machine hits all of them.
The stale ones are ended by the real process, from the moment it leads to the last mark in the outbox; beside it stands
Attune's way, on the same rows, with a publish that is confirmed as ours is. Attune waits a minute after each hundred:
with and without that minute are two different figures, and both are reported.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from benchmarks.contender import Child, ContenderFailed, Measurement
from benchmarks.one_by_one import AT_A_TIME
from benchmarks.ours import sidecar
from benchmarks.stale_world import count_with_status, stale_stage
from benchmarks.world import Stage, World
from dlq_handler.app import Replica
from dlq_handler.database.leadership import Leadership
from dlq_handler.logs import configure_logging
from dlq_handler.settings import load
from dlq_handler.timeouts.monitor import TimeoutMonitor
from sandbox.attune import topology

TICKS = 40
ATTUNES_INTERVAL_SECONDS = 60
WARM_UP_TICKS = 3
RUN_SECONDS = 900
LED = "leadership.acquired"
# High enough never to hold, and still counted with every page.
NO_BRAKE = {"ATTUNE__DLQ_HANDLER__BRAKE__MAX_DECISIONS_PER_MINUTE": "10000000"}
QUICK_LOOKS = {"ATTUNE__DLQ_HANDLER__MONITOR__INTERVAL_SECONDS": "2"}

# Both are answered by an index, however much is done already: to count it would cost what is being measured.
_IS_DONE = """
SELECT NOT EXISTS (SELECT FROM execution WHERE status = 'scheduled' AND updated < now() - interval '10 minutes')
   AND NOT EXISTS (SELECT FROM dlq_handler.outbox WHERE confirmed_at IS NULL)
"""
_WHEN = """
SELECT (SELECT max(decided_at) FROM dlq_handler.stale_decision) AS decided,
       (SELECT max(confirmed_at) FROM dlq_handler.outbox) AS last
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One run of ours: until the last row was ended, and until the last completion event was confirmed."""

    rows: int
    ended_seconds: float
    announced_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorCourse:
    ticks: dict[int, Sequence[float]]
    """Seconds of idle ticks by the number of rows."""
    ours: Sequence[Ended]
    one_by_one: Sequence[Measurement]

    @property
    def growth(self) -> float:
        """What ten times the rows do to an idle tick."""
        sizes = sorted(self.ticks)
        return median(self.ticks[sizes[1]]) / median(self.ticks[sizes[0]])

    @property
    def work_ratios(self) -> list[float]:
        """How many times as fast as one by one, if that never waited; round by round, ascending."""
        pairs = zip(self.ours, self.one_by_one, strict=True)
        return sorted(one.rows / one.announced_seconds / other.per_second for one, other in pairs)

    @property
    def ratios(self) -> list[float]:
        """The same beside Attune's way as it runs: a hundred, then the rest of a minute."""
        pairs = zip(self.ours, self.one_by_one, strict=True)
        return sorted(_as_it_runs(one.rows, other) / one.announced_seconds for one, other in pairs)


def _as_it_runs(rows: int, other: Measurement) -> float:
    """Seconds for so many rows, with the pause after each hundred but the last."""
    hundreds = -(-rows // AT_A_TIME)
    return rows / other.per_second + (hundreds - 1) * ATTUNES_INTERVAL_SECONDS


async def watch_monitor(
    world: World, *, sizes: Sequence[int], stale: int, rounds: int, print_line: Callable[[str], None]
) -> MonitorCourse:
    ticks = await _idle_ticks(world, sizes, print_line)
    ours: list[Ended] = []
    one_by_one: list[Measurement] = []
    for number in range(rounds):
        async with stale_stage(world, history=sizes[0], stale=stale) as stage:
            # First the slow one, on the oldest rows of the same table; it leaves more than enough.
            one_by_one.append(await _one_by_one(stage, rows=max(200, stale // 50)))
            ours.append(await _ours(stage))
        print_line(
            f"stale round {number + 1}/{rounds}: one by one {one_by_one[-1].per_second:.0f}/s, "
            f"ours {ours[-1].rows / ours[-1].announced_seconds:.0f}/s ({ours[-1].rows} rows)"
        )
    return MonitorCourse(ticks=ticks, ours=ours, one_by_one=one_by_one)


async def _idle_ticks(
    world: World, sizes: Sequence[int], print_line: Callable[[str], None]
) -> dict[int, Sequence[float]]:
    configure_logging(level="error", format="json")
    ticks: dict[int, list[float]] = {size: [] for size in sizes}
    async with AsyncExitStack() as stack:
        ticking = {}
        for size in sizes:
            print_line(f"idle ticks: {size} executions are written")
            stage = await stack.enter_async_context(stale_stage(world, history=size, stale=0))
            ticking[size] = _tick_of(stage)
        for number in range(WARM_UP_TICKS + TICKS):
            for size, tick in ticking.items():
                seconds = await tick()
                if number >= WARM_UP_TICKS:
                    ticks[size].append(seconds)
    return dict(ticks)


def _tick_of(stage: Stage) -> Callable[[], "asyncio.Future[float]"]:
    settings = load(None, stage.environment(**NO_BRAKE)).settings
    replica = Replica(settings)
    # Constructed by the application itself, so that nothing is left out.
    services = replica.services_that_end_first()
    monitor = next(service for service in services if isinstance(service, TimeoutMonitor))
    leadership = next(service for service in services if isinstance(service, Leadership))

    async def tick() -> float:
        await leadership.tick()
        began = time.perf_counter()
        await monitor.tick()
        return time.perf_counter() - began

    return lambda: asyncio.ensure_future(tick())


async def _one_by_one(stage: Stage, *, rows: int) -> Measurement:
    log = stage.folder / "one_by_one.log"
    environment = stage.environment(BENCH_LETTERS=str(rows), BENCH_ROWS=str(rows))
    async with Child.run(["benchmarks.one_by_one"], environment, stage.folder, log) as child:
        if await child.wait() != 0:
            raise ContenderFailed(f"one by one failed:\n{child.log_tail()}")
    return Measurement(**json.loads(log.read_text().splitlines()[-1]))


async def _ours(stage: Stage) -> Ended:
    async with stage.session() as session:
        # What is under way on live workers is not stale, and left alone.
        wanted: int = await session.fetchval(
            "SELECT count(*) FROM execution WHERE status = 'scheduled' AND updated < now() - interval '10 minutes'"
        )
    failed_before = await count_with_status(stage, "failed")
    async with sidecar(stage, **NO_BRAKE, **QUICK_LOOKS) as child:
        led_at = await _leading(child)
        decided, announced = await _all_announced(stage, child)
        if await child.terminate() != 0:
            raise ContenderFailed(f"the sidecar did not end well:\n{child.log_tail()}")
    ended = await count_with_status(stage, "failed") - failed_before
    published = await stage.ready(topology.COMPLETED_QUEUE)
    if ended != wanted or published < wanted:
        raise ContenderFailed(
            f"of {wanted} stale executions {ended} were ended, {published} completion events are out"
        )
    return Ended(rows=wanted, ended_seconds=decided - led_at, announced_seconds=announced - led_at)


async def _leading(child: Child) -> float:
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at and not child.has_ended:
        for line in child.log.read_text(errors="replace").splitlines():
            if f'"{LED}"' in line:
                return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
        await asyncio.sleep(0.01)
    raise ContenderFailed(f"the sidecar did not come to lead:\n{child.log_tail()}")


async def _all_announced(stage: Stage, child: Child) -> tuple[float, float]:
    give_up_at = time.monotonic() + RUN_SECONDS
    async with stage.session() as session:
        while time.monotonic() < give_up_at and not child.has_ended:
            if await session.fetchval(_IS_DONE):
                when = await session.fetchrow(_WHEN) or {}
                return float(when["decided"].timestamp()), float(when["last"].timestamp())
            await asyncio.sleep(1.0)
    raise ContenderFailed(f"not all stale executions were announced:\n{child.log_tail()}")


def lines(course: MonitorCourse) -> Iterator[str]:
    for size, seconds in sorted(course.ticks.items()):
        yield f"idle tick with {size:>9} executions: {1000 * median(seconds):.1f} ms"
    for one, other in zip(course.ours, course.one_by_one, strict=True):
        yield (
            f"{one.rows} stale executions: ended after {one.ended_seconds:.1f} s, announced after "
            f"{one.announced_seconds:.1f} s; one by one, {other.per_second:.0f}/s, takes "
            f"{one.rows / other.per_second:.0f} s of work and {_as_it_runs(one.rows, other) / 3600:.1f} h as it runs"
        )
