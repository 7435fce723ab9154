"""`./run bench`: exit code 0 when every bar is reached, 1 when one is not, 130 when it was interrupted."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from benchmarks import dashboard, fleet, flow_stop, large_bodies, monitor, report
from benchmarks.dashboard import time_pages
from benchmarks.fleet import FleetExtent, watch_fleet
from benchmarks.flow_stop import watch_flow_stop
from benchmarks.large_bodies import watch_large_bodies
from benchmarks.memory import watch_memory
from benchmarks.monitor import watch_monitor
from benchmarks.rounds import run_rounds
from benchmarks.world import World

LONGEST_SECONDS = 3600
PARTS = ("speed", "memory", "large-bodies", "monitor", "flow-stop", "pages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    rounds: int
    letters: int
    waiting: int
    stall_seconds: float
    drain_seconds: float
    sizes: tuple[int, ...]
    """Rows in the tables on which idle ticks are timed, each ten times the one before."""
    stale: int
    letters_on_record: tuple[int, ...]
    """With so many the pages are timed, in turn."""
    queued: int
    """Messages in the queue of a flow that is stopped."""
    stop_rounds: int
    stop_settings: Mapping[str, str] = field(default_factory=dict)
    has_large_bodies: bool = True


FULL = Extent(
    rounds=5,
    letters=10_000,
    waiting=200_000,
    stall_seconds=90,
    drain_seconds=20,
    sizes=(100_000, 1_000_000),
    stale=100_000,
    letters_on_record=(5_000, 5_000_000),
    queued=50_000,
    stop_rounds=2,
)
QUICK = Extent(
    rounds=2,
    letters=3_000,
    waiting=20_000,
    stall_seconds=15,
    drain_seconds=5,
    sizes=(10_000, 100_000),
    stale=5_000,
    letters_on_record=(5_000, 500_000),
    queued=10_000,
    stop_rounds=1,
    # By default longer than so few messages take.
    stop_settings={"ATTUNE__DLQ_HANDLER__LIFECYCLE__SETTLE_SECONDS": "1"},
)


def main() -> int:
    arguments = _arguments()
    usual = QUICK if arguments.quick else FULL
    if arguments.only is not None:
        usual = _alone(usual, arguments.only)
    extent = Extent(
        rounds=usual.rounds if arguments.rounds is None else arguments.rounds,
        letters=arguments.letters or usual.letters,
        waiting=usual.waiting if arguments.waiting is None else arguments.waiting,
        stall_seconds=arguments.stall_seconds or usual.stall_seconds,
        drain_seconds=usual.drain_seconds,
        sizes=(*usual.sizes, 10 * usual.sizes[-1]) if arguments.huge else usual.sizes,
        stale=usual.stale if arguments.stale is None else arguments.stale,
        letters_on_record=() if arguments.no_pages else usual.letters_on_record,
        has_large_bodies=usual.has_large_bodies,
        queued=usual.queued if arguments.queued is None else arguments.queued,
        stop_rounds=usual.stop_rounds,
        stop_settings=usual.stop_settings,
    )
    fleet_extent = None
    if arguments.fleet:
        usual_fleet = FleetExtent(settle_seconds=30, watch_seconds=60) if arguments.quick else FleetExtent()
        fleet_extent = replace(usual_fleet, workers=arguments.workers or usual_fleet.workers)
    try:
        return asyncio.run(_bench(extent) if fleet_extent is None else _bench_fleet(fleet_extent))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; every process that was started has ended", file=sys.stderr)
        return 130


def _alone(extent: Extent, part: str) -> Extent:
    return replace(
        extent,
        rounds=extent.rounds if part == "speed" else 0,
        waiting=extent.waiting if part == "memory" else 0,
        has_large_bodies=part == "large-bodies",
        stale=extent.stale if part == "monitor" else 0,
        letters_on_record=extent.letters_on_record if part == "pages" else (),
        queued=extent.queued if part == "flow-stop" else 0,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="two short rounds, a short stall, small tables: some minutes"
    )
    parser.add_argument(
        "--rounds", type=int, help=f"rounds of all contenders (default {FULL.rounds}; 0: none of them)"
    )
    parser.add_argument("--letters", type=int, help=f"letters of ours in a round (default {FULL.letters})")
    parser.add_argument(
        "--waiting", type=int, help=f"letters that wait for memory (default {FULL.waiting}; 0: none)"
    )
    parser.add_argument(
        "--stall-seconds", type=float, help=f"of the database (default {FULL.stall_seconds:g})"
    )
    parser.add_argument(
        "--stale", type=int, help=f"stale executions for the monitor (default {FULL.stale}; 0: no monitor)"
    )
    parser.add_argument(
        "--queued", type=int, help=f"messages of a flow that is stopped (default {FULL.queued}; 0: no stop)"
    )
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    parser.add_argument(
        "--fleet", action="store_true", help="measure idle replicas beside a large fleet, and nothing else"
    )
    parser.add_argument("--workers", type=int, help=f"of the fleet (default {FleetExtent().workers})")
    parser.add_argument("--no-pages", action="store_true", help="leave the pages of the dashboard out")
    parser.add_argument(
        "--huge", action="store_true", help="idle ticks on ten million rows too: some 15 GB and many minutes"
    )
    return parser.parse_args()


def _cancel_on_sigterm() -> None:
    """SIGTERM ends a run as Ctrl-C does: by leaving every block, so that servers and children go."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _bench_fleet(extent: FleetExtent) -> int:
    _cancel_on_sigterm()
    load = os.getloadavg()[0]
    async with asyncio.timeout(LONGEST_SECONDS), World.open() as world:
        lines = [*report.machine(await world.versions(), load=load), ""]
        course = await watch_fleet(world, extent, _say)
    bars = list(fleet.bars(course, extent))
    print("\n".join(["", *lines, *fleet.lines(course, extent), "", *map(str, bars)]))
    return 0 if all(bar.is_reached for bar in bars) else 1


async def _bench(extent: Extent) -> int:
    _cancel_on_sigterm()
    load = os.getloadavg()[0]
    lines: list[str] = []
    bars: list[report.Bar] = []
    async with asyncio.timeout(LONGEST_SECONDS), World.open() as world:
        lines += report.machine(await world.versions(), load=load)
        if extent.rounds:
            results = await run_rounds(world, rounds=extent.rounds, letters=extent.letters, print_line=_say)
            lines += ["", *report.table(results)]
            bars += report.speed_bars(results)
        if extent.waiting:
            course = await watch_memory(
                world,
                letters=extent.waiting,
                stall_seconds=extent.stall_seconds,
                drain_seconds=extent.drain_seconds,
                print_line=_say,
            )
            lines += ["", *report.memory_lines(course)]
            bars += report.memory_bars(course)
        if extent.has_large_bodies:
            courses = await watch_large_bodies(world, print_line=_say)
            lines += ["", *large_bodies.lines(courses)]
            bars += report.large_body_bars(courses)
        if extent.stale:
            monitored = await watch_monitor(
                world,
                sizes=extent.sizes,
                stale=extent.stale,
                rounds=min(extent.rounds, 2) or 1,
                print_line=_say,
            )
            lines += ["", *monitor.lines(monitored)]
            bars += report.monitor_bars(monitored)
        if extent.queued:
            stops = await watch_flow_stop(
                world,
                messages=extent.queued,
                rounds=extent.stop_rounds,
                settings=extent.stop_settings,
                print_line=_say,
            )
            lines += ["", *flow_stop.lines(stops)]
            bars += report.stop_bars(stops)
        if extent.letters_on_record:
            pages = await time_pages(world, sizes=extent.letters_on_record, print_line=_say)
            lines += ["", *dashboard.lines(pages)]
            bars += report.page_bars(pages)
    print("\n".join(["", *lines, "", *map(str, bars)]))
    return 0 if all(bar.is_reached for bar in bars) else 1


_BEGAN = time.monotonic()


def _say(line: str) -> None:
    print(f"[{time.monotonic() - _BEGAN:5.0f} s] {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
