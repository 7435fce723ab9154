"""One measured run: what was done, in how long, with how much CPU of the process that did it.

Every contender is a process of its own, connected before the clock starts, and says by itself when that was. The
clock is the wall clock of this machine, which its servers share.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.world import Stage

LETTERS = "BENCH_LETTERS"
RUN_SECONDS = 180


class ContenderFailed(Exception):
    """It ended early, or did not do its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    letters: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.letters / self.seconds

    @property
    def cpu_us_per_letter(self) -> float:
        return 1e6 * self.cpu_seconds / self.letters


class Stopwatch:
    """For the contender itself: started when it is connected, stopped when its last letter is done."""

    def __init__(self) -> None:
        self.letters = int(os.environ[LETTERS])
        self._began = self._cpu_began = 0.0

    def start(self) -> None:
        self._began, self._cpu_began = time.monotonic(), time.process_time()

    def stop(self) -> None:
        """Report to the parent, on the last line of stdout."""
        seconds, cpu_seconds = time.monotonic() - self._began, time.process_time() - self._cpu_began
        print(
            json.dumps({"letters": self.letters, "seconds": seconds, "cpu_seconds": cpu_seconds}), flush=True
        )


async def measure(stage: Stage, module: str, *arguments: str) -> Measurement:
    """Run `python -m module arguments`, which uses a `Stopwatch`."""
    log = stage.folder / "contender.log"
    environment = stage.environment(**{LETTERS: str(stage.letters)})
    async with Child.run([module, *arguments], environment, stage.folder, log) as child:
        if await child.wait() != 0:
            raise ContenderFailed(f"{module} {' '.join(arguments)} failed:\n{child.log_tail()}")
    return Measurement(**json.loads(log.read_text().splitlines()[-1]))


class Child:
    """A Python process that ends with its block, however that ends."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.log = log
        self._process = process

    @classmethod
    @asynccontextmanager
    async def run(
        cls, module: Sequence[str], environment: dict[str, str], folder: Path, log: Path
    ) -> AsyncIterator[Self]:
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *module),
                env=environment,
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C goes to the whole group: the child is ended here, in order, and not by the terminal.
                start_new_session=True,
            )
        try:
            yield cls(process, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        async with asyncio.timeout(RUN_SECONDS):
            return await self._process.wait()

    async def terminate(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        return await self.wait()

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]
