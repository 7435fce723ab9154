"""The auditor's process, and its reports. It ends with its standard input, so however we end, it ends too."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.clean_environment import clean_environment

# One line may name all executions of the demo.
_LONGEST_LINE = 2**24
_END_SECONDS = 5


class AuditorEnded(Exception):
    """It must outlive the story."""


class AuditorProcess:
    def __init__(self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, log: Path) -> None:
        self.log = log
        self._stdin, self._stdout = stdin, stdout

    async def reports(self) -> AsyncIterator[dict[str, Any]]:
        async for line in self._stdout:
            yield json.loads(line)
        raise AuditorEnded(f"the auditor ended; its log: {self.log}")

    def let_go(self) -> None:
        self._stdin.close()

    async def ask_for_audit(self) -> None:
        await self._tell("audit")

    async def announce_kill(self, parts: Iterable[str]) -> None:
        """Before they are killed, so that nothing which follows from it is seen before it is known."""
        await self._tell(*(f"lost {part}" for part in parts))

    async def announce_start(self, parts: Iterable[str]) -> None:
        await self._tell(*(f"back {part}" for part in parts))

    async def announce_retirement(self, worker: str) -> None:
        """While its row still has its name."""
        await self._tell(f"retired {worker}")

    async def _tell(self, *lines: str) -> None:
        self._stdin.writelines(f"{line}\n".encode() for line in lines)
        await self._stdin.drain()


@asynccontextmanager
async def auditor(amqp_url: str, database_url: str, log: Path) -> AsyncIterator[AuditorProcess]:
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sandbox.auditor",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=clean_environment(
                {"ATTUNE__MESSAGE_QUEUE__URL": amqp_url, "ATTUNE__DATABASE__URL": database_url}
            ),
            limit=_LONGEST_LINE,
            start_new_session=True,  # Ctrl-C is for us alone: it watches until we let it go
        )
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RuntimeError("asyncio gave no pipes although it was asked for them")
    link = AuditorProcess(stdin, stdout, log)
    try:
        yield link
    finally:
        link.let_go()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            await process.wait()
