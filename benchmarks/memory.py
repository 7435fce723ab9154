"""The sidecar's memory with a long queue in front of it and a database that has stopped answering.

The database stalls as a network does it: connections stay, new ones are accepted, not a byte passes. Then it comes
back, and the sidecar drains. Its resident set is sampled all the way.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import psutil

from benchmarks.contender import Child, ContenderFailed
from benchmarks.ours import opening, sidecar
from benchmarks.world import Stage, World
from sandbox.attune import topology
from tests.support.tcp_proxy import TcpProxy

SAMPLE_SECONDS = 0.25
WARM_UP_LETTERS = 2_000
WARM_UP_SECONDS = 120
MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCourse:
    """Resident megabytes, sampled while the database was stalled, then while the queue was drained."""

    waiting: int
    stall_seconds: float
    stalled: Sequence[float]
    draining: Sequence[float]
    drained: int

    @property
    def most(self) -> float:
        return max(*self.stalled, *self.draining)

    @property
    def growth(self) -> float:
        """By how much the end of either phase is above its beginning, whichever grew more."""
        return max(_growth(self.stalled), _growth(self.draining))


def _growth(samples: Sequence[float]) -> float:
    """Between the second quarter and the last: the first is for buffers that fill once."""
    quarter = max(1, len(samples) // 4)
    return median(samples[-quarter:]) - median(samples[quarter : 2 * quarter] or samples)


async def watch_memory(
    world: World,
    *,
    letters: int,
    stall_seconds: float,
    drain_seconds: float,
    print_line: Callable[[str], None],
) -> MemoryCourse:
    print_line(f"memory: {letters} letters are made to wait")
    async with (
        world.stage(letters) as stage,
        TcpProxy.to(stage.database_url) as link,
        sidecar(replace(stage, database_url=link.url)) as child,
    ):
        await opening(child)
        await _until_recorded(stage, child, min(WARM_UP_LETTERS, letters // 4))
        link.freeze()
        print_line(f"memory: the database stalls for {stall_seconds:.0f} s")
        stalled = await _sampled(child, stall_seconds)
        waiting = await stage.ready(topology.DLX_QUEUE)
        before = await _recorded(stage)
        await link.heal()
        print_line(f"memory: it is back; draining for at most {drain_seconds:.0f} s")
        await _until_recorded(stage, child, before + 1)
        draining = await _sampled(child, drain_seconds)
        drained = await _recorded(stage) - before
        if await child.terminate() != 0:
            raise ContenderFailed(f"the sidecar did not end well:\n{child.log_tail()}")
    return MemoryCourse(
        waiting=waiting, stall_seconds=stall_seconds, stalled=stalled, draining=draining, drained=drained
    )


async def _sampled(child: Child, seconds: float) -> list[float]:
    process, samples = psutil.Process(child.pid), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if child.has_ended:
            raise ContenderFailed(f"the sidecar ended while it was watched:\n{child.log_tail()}")
        samples.append(process.memory_info().rss / MEGABYTE)
        await asyncio.sleep(SAMPLE_SECONDS)
    return samples


async def _until_recorded(stage: Stage, child: Child, count: int) -> None:
    async with asyncio.timeout(WARM_UP_SECONDS):
        while await _recorded(stage) < count:
            if child.has_ended:
                raise ContenderFailed(f"the sidecar ended early:\n{child.log_tail()}")
            await asyncio.sleep(0.2)


async def _recorded(stage: Stage) -> int:
    async with stage.session() as session:
        count: int = await session.fetchval("SELECT count(*) FROM dlq_handler.letter")
    return count
