"""The real sidecar, as a process of its own with its defaults, doing the whole job on the letters that wait.

Timed from the moment its consumer was registered, which it logs, to the last mark in the outbox, by the database's
clock. Afterwards it is checked that it really did all of it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import psutil

from benchmarks.contender import Child, ContenderFailed, Measurement
from benchmarks.world import Stage
from sandbox.attune import topology

OPENED = "intake.opened"
START_SECONDS = 60
PROGRESS_SECONDS = 0.5

# One scan of a small table twice a second costs less than a hundredth of what is measured.
_PROGRESS = "SELECT count(confirmed_at) AS confirmed, max(confirmed_at) AS last FROM dlq_handler.outbox"

_DONE = """
SELECT (SELECT count(*) FROM execution WHERE status = 'failed') AS failed,
       (SELECT count(*) FROM dlq_handler.letter WHERE outcome = 'failed') AS recorded,
       (SELECT count(*) FROM dlq_handler.outbox WHERE confirmed_at IS NOT NULL) AS marked
"""


async def measure_ours(stage: Stage) -> Measurement:
    async with sidecar(stage) as child:
        opened_at = await opening(child)
        process = psutil.Process(child.pid)
        cpu_before = _cpu_seconds(process)
        last_at = await all_confirmed(stage, child)
        cpu_seconds = _cpu_seconds(process) - cpu_before
        if await child.terminate() != 0:
            raise ContenderFailed(f"the sidecar did not end well:\n{child.log_tail()}")
    await _check(stage)
    return Measurement(letters=stage.letters, seconds=last_at - opened_at, cpu_seconds=cpu_seconds)


@asynccontextmanager
async def sidecar(stage: Stage, *, log: str = "sidecar.log", **settings: str) -> AsyncIterator[Child]:
    environment = stage.environment(**settings)
    async with Child.run(["dlq_handler", "run"], environment, stage.folder, stage.folder / log) as child:
        yield child


async def opening(child: Child) -> float:
    """When the consumer was registered, as soon as that is in the log."""
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and not child.has_ended:
        for line in child.log.read_text(errors="replace").splitlines():
            if f'"{OPENED}"' in line:
                return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
        await asyncio.sleep(0.01)
    raise ContenderFailed(f"the sidecar did not begin to consume:\n{child.log_tail()}")


async def all_confirmed(stage: Stage, child: Child) -> float:
    """When the last completion event was, as soon as all are."""
    give_up_at = time.monotonic() + stage.run_seconds
    confirmed = 0
    async with stage.session() as session:
        while time.monotonic() < give_up_at and not child.has_ended:
            progress = await session.fetchrow(_PROGRESS) or {}
            confirmed, last = progress["confirmed"], progress["last"]
            if confirmed >= stage.letters:
                return float(last.timestamp())
            await asyncio.sleep(PROGRESS_SECONDS)
    raise ContenderFailed(
        f"the sidecar ended early, or went on for {stage.run_seconds:.0f} s: {confirmed} of {stage.letters} "
        f"confirmed:\n{child.log_tail()}"
    )


async def _check(stage: Stage) -> None:
    async with stage.session() as session:
        done = dict(await session.fetchrow(_DONE) or {})
    done["completions"] = await stage.ready(topology.COMPLETED_QUEUE)
    left = await stage.ready(topology.DLX_QUEUE)
    if set(done.values()) != {stage.letters} or left:
        raise ContenderFailed(f"of {stage.letters} letters: {done}, {left} left in the queue")


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
