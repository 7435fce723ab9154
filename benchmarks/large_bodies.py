"""The sidecar's peak memory with large bodies in front of good dead letters.

Each body is a dispatch as Attune sends it, with a config of small values: parsed whole, these take most memory for each
byte. Many have the largest size that is parsed whole. One has the largest size that a broker takes by default: 16 MiB
for RabbitMQ 4, 128 MiB for RabbitMQ 3.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.contender import Child, ContenderFailed
from benchmarks.ours import opening, sidecar
from benchmarks.world import ACTION_REF, WORKER_ID, Stage, World
from sandbox.attune import messages

MEBIBYTE = 1024 * 1024
# Size, and how many of it.
PARSED_WHOLE = (MEBIBYTE, 50)
SMALLER, LARGEST = (16 * MEBIBYTE, 1), (128 * MEBIBYTE, 1)
# From this version on a broker takes no message of more than 16 MiB.
FIRST_STRICT_MAJOR = 4
GOOD = 1_000
SAMPLE_SECONDS = 0.05
MOST_SECONDS = 120

_DONE = """
SELECT count(*) FILTER (WHERE body_size <> $1) AS good, count(*) FILTER (WHERE body_size = $1) AS large
  FROM dlq_handler.letter
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeBodyCourse:
    body_bytes: int
    bodies: int
    good: int
    seconds: float
    """From the opening of the intake until all are on record."""
    peak_megabytes: float


async def watch_large_bodies(world: World, *, print_line: Callable[[str], None]) -> list[LargeBodyCourse]:
    version = (await world.versions())["RabbitMQ"]
    is_strict = int(version.partition(".")[0]) >= FIRST_STRICT_MAJOR
    courses = []
    for size, count in (PARSED_WHOLE, SMALLER) if is_strict else (PARSED_WHOLE, SMALLER, LARGEST):
        print_line(f"large bodies: {count} of {size // MEBIBYTE} MiB in front of {GOOD} dead letters")
        bodies = [_body(size) for _ in range(count)]
        async with world.stage(GOOD, in_front=bodies) as stage, sidecar(stage) as child:
            courses.append(await _watched(stage, child, size, count))
            if await child.terminate() != 0:
                raise ContenderFailed(f"the sidecar did not end well:\n{child.log_tail()}")
    return courses


async def _watched(stage: Stage, child: Child, size: int, bodies: int) -> LargeBodyCourse:
    await opening(child)
    began, peak, done = time.monotonic(), 0.0, {}
    async with stage.session() as session:
        while time.monotonic() < began + MOST_SECONDS:
            if child.has_ended:
                raise ContenderFailed(f"the sidecar ended while it was watched:\n{child.log_tail()}")
            peak = max(peak, _resident_megabytes(child.pid))
            done = dict(await session.fetchrow(_DONE, size) or {})
            if done == {"good": GOOD, "large": bodies}:
                return LargeBodyCourse(
                    body_bytes=size,
                    bodies=bodies,
                    good=GOOD,
                    seconds=time.monotonic() - began,
                    peak_megabytes=max(peak, _resident_megabytes(child.pid)),
                )
            await asyncio.sleep(SAMPLE_SECONDS)
    raise ContenderFailed(f"not all on record after {MOST_SECONDS} s: {done}:\n{child.log_tail()}")


def _resident_megabytes(pid: int) -> float:
    """The highest so far where the system keeps that, else the current one."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return float(psutil.Process(pid).memory_info().rss) / MEBIBYTE


def _body(size: int) -> bytes:
    """Of an execution that is long over: its dead letter changes nothing."""
    message = messages.dispatch(
        execution_id=1, worker_id=WORKER_ID, action_ref=ACTION_REF, scheduled_at=None, config={"rows": "ROWS"}
    )
    head, tail = message.body.split(b'"ROWS"')
    room = size - len(head) - len(tail) - len(b"[[]]")
    rows = b"[" + b"[]," * (room // 3) + b"[]]" + b" " * (room % 3)
    body = head + rows + tail
    if len(body) != size or not json.loads((head + b"[]" + tail).decode()):
        raise AssertionError("the body is not as large as wanted")
    return body


def lines(courses: Sequence[LargeBodyCourse]) -> Iterator[str]:
    for course in courses:
        yield (
            f"{course.bodies} x {course.body_bytes // MEBIBYTE} MiB in front of {course.good} dead letters: "
            f"peak {course.peak_megabytes:.0f} MB resident, all on record after {course.seconds:.1f} s"
        )
