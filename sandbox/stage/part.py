"""One part of a stage: a process that can be started, stopped, killed, frozen, and started again."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sandbox.server_programs.program import ROOT_FOLDER
from sandbox.servers import NoServer
from sandbox.servers.owned_process import OwnedProcess
from sandbox.stage.health import HealthCheck

START_SECONDS = 60
LOOK_SECONDS = 0.2


class PartFailed(Exception):
    """A part did not do what it was asked for. Says which, why, and where to read on."""

    def __init__(self, part: str, why: str, log: Path) -> None:
        super().__init__(f"{part}: {why}\nits whole log: {log}")
        self.part, self.why, self.log = part, why, log


class Part(Protocol):
    """Also what PrivateRabbitMQ and PrivatePostgreSQL are."""

    log: Path
    process: OwnedProcess | None

    async def start(self) -> None:
        """Returns when it serves; StartFailed with the end of its log when it does not. Running: does nothing."""

    async def stop(self) -> None:
        """Politely; returns when it has ended."""

    async def kill(self) -> None: ...

    async def await_ready(self, timeout: float) -> None:
        """NoServer says what is wrong when it does not serve in time."""


class ProgramPart:
    """A program of Attune's, or the sidecar."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        check_health: HealthCheck,
        start_in: Path = ROOT_FOLDER,
    ) -> None:
        self.log = log
        self.process: OwnedProcess | None = None
        self._command, self._environment = list(command), dict(environment)
        self._complain, self._start_in = check_health, start_in

    def change_settings(self, variables: Mapping[str, str]) -> None:
        """For the next start."""
        self._environment |= variables

    async def start(self) -> None:
        if self.process and self.process.is_running:
            return
        self.process = OwnedProcess(
            self._command, environment=self._environment, log=self.log, start_in=self._start_in
        )
        await self.process.answers(self.await_ready(START_SECONDS))

    async def stop(self) -> None:
        if self.process:
            await self.process.stop(signal.SIGTERM)

    async def kill(self) -> None:
        if self.process:
            await self.process.kill()

    async def await_ready(self, timeout: float) -> None:
        complaint = "it was not asked"
        try:
            async with asyncio.timeout(timeout):
                while complaint := await self._complain():  # noqa: ASYNC110 (another process: no event)
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise NoServer(f"not healthy after {timeout:g} s: {complaint}") from None
