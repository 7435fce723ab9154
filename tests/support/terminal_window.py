"""A process in a terminal of its own, as a person would have it: what it draws, and what is typed into it."""

import asyncio
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.support.eventually import eventually

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Window:
    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self._process, self._master = process, master
        self.raw = ""

    @property
    def text(self) -> str:
        """All that it ever drew, without colours and jumps."""
        return _CONTROL.sub("", self.raw)

    async def shows(self, *texts: str) -> None:
        await eventually(lambda: all(text in self.text for text in texts), timeout=60)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            return await self._process.wait()

    def read(self) -> None:
        try:
            self.raw += os.read(self._master, 65_536).decode("utf-8", "replace")
        except OSError:  # Linux says so when the other end is closed
            asyncio.get_running_loop().remove_reader(self._master)


@asynccontextmanager
async def in_a_terminal(*arguments: str, environment: Mapping[str, str]) -> AsyncIterator[Window]:
    """A command of ours with these settings."""
    master, slave = pty.openpty()
    size = {"TERM": "xterm-256color", "COLUMNS": "180", "LINES": "60"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dlq_handler",
        *arguments,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, **size, **environment},
    )
    os.close(slave)
    window = Window(process, master)
    loop = asyncio.get_running_loop()
    loop.add_reader(master, window.read)
    try:
        yield window
    finally:
        loop.remove_reader(master)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)
