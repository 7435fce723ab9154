"""A server process of ours, held by a guardian so that it cannot outlive us. Bound to no event loop."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import IO, cast

from sandbox.server_programs.account import Account
from sandbox.server_programs.program import ROOT_FOLDER
from sandbox.servers.errors import NoServer, StartFailed
from sandbox.servers.guardian import descendants_of

GUARDIAN = Path(__file__).with_name("guardian.py")
LOG_TAIL_CHARACTERS = 2000
FREEZE_SECONDS = 10


class OwnedProcess:
    """One run of one program. Killed, with all its descendants, as soon as this process ends in any way; then
    `folder` is removed, too.
    """

    def __init__(
        self,
        command: list[str],
        *,
        environment: dict[str, str],
        log: Path,
        folder: Path | None = None,
        start_in: Path = ROOT_FOLDER,
        account: Account | None = None,
    ) -> None:
        self.log = log
        self.is_hung = False
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", str(GUARDIAN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches us, and we end the server in our own order
        )
        start = {
            "command": command,
            "environment": environment,
            "log": str(log),
            "folder": str(folder) if folder else None,
            "start_in": str(start_in),
            "uid": account.uid if account else None,
            "gid": account.gid if account else None,
        }
        self._leash = cast("IO[bytes]", self._guardian.stdin)
        self._leash.write(json.dumps(start).encode() + b"\n")
        self._leash.flush()
        with cast("IO[bytes]", self._guardian.stdout) as answer:
            line = answer.readline()
        if not line:
            raise StartFailed(f"{command[0]} could not be started")
        self.pid = int(line)

    @property
    def is_running(self) -> bool:
        return self._guardian.poll() is None

    def send(self, number: signal.Signals) -> None:
        if not self.is_running:
            return
        # It may end by itself just now, which is what every signal of ours asks for.
        with contextlib.suppress(BrokenPipeError):
            self._leash.write(b"%d\n" % number)
            self._leash.flush()

    async def hang(self) -> None:
        """Freeze it with all its descendants. Returns when they are."""
        self.is_hung = True
        self.send(signal.SIGSTOP)
        async with asyncio.timeout(FREEZE_SECONDS):
            while any(not is_frozen(pid) for pid in (self.pid, *descendants_of(self.pid))):  # noqa: ASYNC110 (other processes: no event)
                await asyncio.sleep(0.01)

    def resume(self) -> None:
        self.is_hung = False
        self.send(signal.SIGCONT)

    async def answers(self, ready: Coroutine[None, None, None]) -> None:
        """Wait for `ready`, but not beyond the server's own end. StartFailed with the end of its log."""
        waiting = asyncio.ensure_future(ready)
        try:
            while not waiting.done():
                if not self.is_running:
                    raise StartFailed(f"it ended while starting; the end of its log:\n{self.log_tail()}")
                await asyncio.wait([waiting], timeout=0.05)
            await waiting
        except NoServer as silent:
            raise StartFailed(f"{silent}; the end of its log:\n{self.log_tail()}") from silent
        finally:
            waiting.cancel()

    async def ended(self, timeout: float) -> None:
        """Wait until it and all its descendants have ended; TimeoutError when they have not."""
        end = time.monotonic() + timeout
        while self.is_running:
            if time.monotonic() > end:
                raise TimeoutError
            await asyncio.sleep(0.02)
        with contextlib.suppress(BrokenPipeError):
            self._leash.close()

    async def stop(self, number: signal.Signals, timeout: float = 30) -> None:
        """Ask politely; what has not ended within `timeout` is killed. Who hangs cannot hear, and is woken first."""
        if self.is_hung:
            self.resume()
        self.send(number)
        try:
            await self.ended(timeout)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        self.send(signal.SIGKILL)
        await self.ended(30)

    def log_tail(self) -> str:
        try:
            return self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
        except OSError:
            return ""


def is_frozen(pid: int) -> bool:
    """Stopped or ended. Unknown on other systems than Linux: then True."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] in {"T", "t", "Z", "X"}
