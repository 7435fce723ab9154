"""What the acts play with: the stage, work to ask for, and facts to wait for.

Every wait is for a fact that the auditor reports, with a patience: never for time to pass.
"""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from sandbox.demo.attune_client import AttuneClient
from sandbox.demo.auditor_process import AuditorProcess
from sandbox.demo.observed import ObservedState, numbers
from sandbox.demo.picture import Condition, Picture
from sandbox.demo.report_lines import ReportLines
from sandbox.demo.view import View
from sandbox.server_programs.errors import ProgramFailed
from sandbox.stage.first_error import raise_first_error
from sandbox.stage.parts import PARTS
from sandbox.stage.programs import WITHOUT_TIMEOUT_MONITOR
from sandbox.stage.stage import Stage

ACTS = 6
_FRAME_SECONDS = 0.25
_REPORT_SECONDS = 2.0
_SETTLE_SECONDS = 10.0


class DemoFailed(Exception):
    """A fact did not come true, or a promise was broken before all eyes. Says which, and whose log to read."""

    def __init__(self, what: str, log: Path) -> None:
        super().__init__(what)
        self.log = log


class World:
    def __init__(
        self,
        stage: Stage,
        client: AttuneClient,
        auditor: AuditorProcess,
        view: View,
        *,
        patience_seconds: float,
    ) -> None:
        self.stage, self.view, self.observed = stage, view, ObservedState()
        self.first_rescue_at: float | None = None
        """By the wall clock."""
        self._client, self._auditor, self._patience_seconds = client, auditor, patience_seconds
        self._news = asyncio.Event()
        self._report_lines = ReportLines()
        self._picture = Picture(observed=self.observed)
        for part in PARTS:
            self._picture.conditions[part] = Condition.ALIVE if stage.is_running(part) else Condition.ABSENT

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Reads and prints the reports and draws the picture while inside."""
        self.view.open(self._picture)
        try:
            with raise_first_error():
                async with asyncio.TaskGroup() as group:
                    watching = [
                        group.create_task(self._take_reports(), name="reports"),
                        group.create_task(self._draw(), name="picture"),
                    ]
                    yield
                    for task in watching:
                        task.cancel()
        finally:
            self._print_reports()
            self.view.close()

    def act(self, number: int, title: str, look_at: str) -> None:
        self._print_reports()
        self._picture.act, self._picture.look_at = f"Act {number} of {ACTS} · {title}", look_at
        self.view.act(number, title, look_at)

    def print_line(self, text: str) -> None:
        # What was seen before comes before.
        self._print_reports()
        self.view.line(text)

    async def ask_for(self, action_ref: str, count: int, **parameters: object) -> list[int]:
        # It may run without having its broker or database back yet. An error would break the story off and leave a row
        # that no service knows of.
        await self.stage.start("api")
        try:
            ids = await self._client.execute(action_ref, count, **parameters)
        except httpx.HTTPError as error:
            raise DemoFailed(
                f"Attune's API does not take {action_ref}: {error!r}", self.stage.log("api")
            ) from error
        # Before what was seen of them meanwhile.
        self.view.line(f"asked Attune's API for {count} x {action_ref}: {numbers(ids)}")
        return ids

    async def start(self, *parts: str) -> None:
        self._are(parts, Condition.STARTING)
        began = time.monotonic()
        await self.stage.start(*parts)
        await self._auditor.announce_start(parts)
        self._are(parts, Condition.ALIVE)
        self.print_line(f"started in {time.monotonic() - began:.1f} s: {', '.join(parts)}")

    async def restart(self, *parts: str) -> None:
        """As an operator does: asked to stop, and started again."""
        for part in parts:
            await self.stage.stop(part)
        await self.start(*parts)

    async def kill(self, *parts: str) -> None:
        self.print_line(f"kill -9: {', '.join(parts)}")
        await self._auditor.announce_kill(parts)
        await self.stage.kill(*parts)
        self._are(parts, Condition.KILLED)

    async def retire(self, worker: str) -> None:
        """Ask it to stop, for good."""
        await self._auditor.announce_retirement(worker)
        self.print_line(f"{worker} is asked to stop (SIGTERM): it becomes inactive and finishes what it runs")
        await self.stage.stop(worker)
        self._are([worker], Condition.ABSENT)
        self.print_line(f"{worker} has ended")

    async def sidecar_command(self, *arguments: str) -> None:
        """As an operator types it."""
        self.print_line(f"$ dlq-handler {shlex.join(arguments)}")
        try:
            await self.stage.sidecar_command(*arguments)
        except ProgramFailed as error:
            raise DemoFailed(
                f"dlq-handler {shlex.join(arguments)}: {error}", self.stage.log("sidecar")
            ) from error

    async def restart_executor_without_monitor(self) -> None:
        """As docs/how-to/beside-attune.md advises."""
        for part in ("executor", "sidecar"):
            self.stage.change_settings(part, WITHOUT_TIMEOUT_MONITOR)
        await self.restart("executor")

    async def hang(self, part: str) -> None:
        await self.stage.hang(part)
        self._are([part], Condition.HANGS)
        self.print_line(f"{part} hangs (SIGSTOP): connected, silent, holding what it was given")

    async def until(self, what: str, is_so: Callable[[], bool], *, part: str = "sidecar") -> None:
        """DemoFailed when it is not so in time, naming the log of `part`, or as soon as a promise is broken."""
        violations = self.observed.violations
        if not await self._wait(lambda: bool(violations) or is_so(), self._patience_seconds):
            raise DemoFailed(f"not so after {self._patience_seconds:g} s: {what}", self.stage.log(part))
        if violations:
            raise DemoFailed(f"a promise was broken, {violations[0]}", self.stage.log("sidecar"))

    async def settle(self) -> None:
        """After a story that broke off: what is only unfinished shall not look like a broken promise."""
        observed = self.observed
        await self._wait(
            lambda: (
                observed.are_settled(observed.executions)
                and not observed.line
                and not any(observed.queues.values())
            ),
            _SETTLE_SECONDS,
        )

    async def audit(self) -> Mapping[str, Any]:
        await self._auditor.ask_for_audit()
        if not await self._wait(lambda: self.observed.audit is not None, self._patience_seconds):
            raise DemoFailed("the auditor does not answer", self._auditor.log)
        return self.observed.audit or {}

    async def _wait(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Asked anew at every report."""
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _are(self, parts: Iterable[str], condition: Condition) -> None:
        for part in parts:
            self._picture.conditions[part] = condition

    async def _take_reports(self) -> None:
        async for report in self._auditor.reports():
            self.observed.take(report)
            self._report_lines.add(report, self.observed)
            if report["kind"] in {"away", "back"}:
                self.print_line(f"the {report['server']} is {report['kind']}")
            if self.first_rescue_at is None and self.observed.rescued():
                self.first_rescue_at = time.time()
            self._news.set()

    async def _draw(self) -> None:
        reported_at = time.monotonic()
        while True:
            await asyncio.sleep(_FRAME_SECONDS)
            if time.monotonic() - reported_at >= _REPORT_SECONDS:
                self._print_reports()
                reported_at = time.monotonic()
            self.view.refresh()

    def _print_reports(self) -> None:
        for sentence in self._report_lines.flush():
            self.view.line(sentence)
