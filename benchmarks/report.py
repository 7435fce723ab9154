"""What is printed at the end: the table, the memory, the bars and whether they were reached."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.dashboard import LETTERS, NOW, PagesCourse
from benchmarks.flow_stop import StopCourse
from benchmarks.large_bodies import MEBIBYTE, LargeBodyCourse
from benchmarks.memory import MemoryCourse
from benchmarks.monitor import MonitorCourse
from benchmarks.rounds import CONTENDERS, NAIVE, OURS, Results

LEAST_RATIO, AIM = 4.0, 8.0
MOST_MEGABYTES = 150.0
MOST_GROWTH_MEGABYTES = 10.0
MOST_LARGE_BODY_MEGABYTES = 200.0
MOST_TICK_GROWTH = 1.5
LEAST_SCAN_RATIO = 20.0
MOST_STOP_RATIO = 3.0
MOST_PAGE_GROWTH = 2.0
MOST_PAGE_SECONDS = 0.3
MOST_PAGE_BYTES = 60 * 1024
BUSY_LOAD = 1.0


@dataclass(frozen=True, slots=True)
class Bar:
    text: str
    is_reached: bool

    def __str__(self) -> str:
        return f"{'PASS' if self.is_reached else 'FAIL'}  {self.text}"


def machine(versions: Mapping[str, str], *, load: float) -> Iterator[str]:
    servers = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {servers}"
    )
    if load > BUSY_LOAD:
        # The naive handler uses one core at a time, ours all that are free: a busy machine takes from ours first.
        yield f"the machine is busy (load {load:.1f}): ratios are smaller than on a quiet one"


def table(results: Results) -> Iterator[str]:
    yield f"{'variant':<54}{'letters/s':>10}{'x naive':>9}{'(range)':>14}{'CPU us/letter':>15}"
    for contender in CONTENDERS:
        ratios = results.ratios(contender.name)
        spread = "" if contender.name == NAIVE else f"({ratios[0]:.1f}-{ratios[-1]:.1f})"
        yield (
            f"{contender.text:<54}{results.per_second(contender.name):>10.0f}{median(ratios):>9.1f}{spread:>14}"
            f"{results.cpu_us(contender.name):>15.0f}"
        )


def speed_bars(results: Results) -> Iterator[Bar]:
    ratio = median(results.ratios(OURS))
    yield Bar(
        f"ours is {ratio:.1f} x naive; wanted {LEAST_RATIO:g} x, aimed at {AIM:g} x", ratio >= LEAST_RATIO
    )


def memory_lines(course: MemoryCourse) -> Iterator[str]:
    yield (
        f"memory with {course.waiting} letters waiting and the database stalled for {course.stall_seconds:.0f} s: "
        f"{min(course.stalled):.0f} to {max(course.stalled):.0f} MB; then, while {course.drained} letters were "
        f"drained: {min(course.draining):.0f} to {max(course.draining):.0f} MB"
    )


def memory_bars(course: MemoryCourse) -> Iterator[Bar]:
    yield Bar(
        f"at most {course.most:.0f} MB resident; wanted below {MOST_MEGABYTES:g}",
        course.most < MOST_MEGABYTES,
    )
    yield Bar(
        f"flat: {course.growth:+.1f} MB from early to late; wanted below {MOST_GROWTH_MEGABYTES:g}",
        course.growth < MOST_GROWTH_MEGABYTES,
    )


def large_body_bars(courses: Sequence[LargeBodyCourse]) -> Iterator[Bar]:
    for course in courses:
        yield Bar(
            f"at most {course.peak_megabytes:.0f} MB resident with {course.bodies} x "
            f"{course.body_bytes // MEBIBYTE} MiB of body; wanted below {MOST_LARGE_BODY_MEGABYTES:g}",
            course.peak_megabytes < MOST_LARGE_BODY_MEGABYTES,
        )


def monitor_bars(course: MonitorCourse) -> Iterator[Bar]:
    yield Bar(
        f"ten times the rows make an idle tick {course.growth:.2f} x as long; wanted at most {MOST_TICK_GROWTH:g} x",
        course.growth <= MOST_TICK_GROWTH,
    )
    ratio, work_ratio = median(course.ratios), median(course.work_ratios)
    yield Bar(
        f"stale rows end {ratio:.0f} x as fast as Attune's way ends them, wanted {LEAST_SCAN_RATIO:g} x; "
        f"{work_ratio:.1f} x if it never paused",
        ratio >= LEAST_SCAN_RATIO,
    )


def stop_bars(course: StopCourse) -> Iterator[Bar]:
    yield Bar(
        f"the stop of a flow takes {course.ratio:.2f} x as long as the intake of as many dead letters; wanted at most "
        f"{MOST_STOP_RATIO:g} x",
        course.ratio <= MOST_STOP_RATIO,
    )


def page_bars(course: PagesCourse) -> Iterator[Bar]:
    few, many = min(course.seconds), max(course.seconds)
    for page in (NOW, LETTERS):
        growth, slowest = course.growth(page), course.slowest(page)
        yield Bar(
            f"{page} takes {growth:.2f} x as long with {many} letters as with {few}, wanted at most "
            f"{MOST_PAGE_GROWTH:g} x; {1000 * slowest:.0f} ms, wanted at most {1000 * MOST_PAGE_SECONDS:.0f}",
            growth <= MOST_PAGE_GROWTH and slowest <= MOST_PAGE_SECONDS,
        )
    yield Bar(
        f"{NOW} is {course.bytes_of_now / 1024:.0f} KB; wanted at most {MOST_PAGE_BYTES // 1024}",
        course.bytes_of_now <= MOST_PAGE_BYTES,
    )
