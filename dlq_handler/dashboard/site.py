"""State that all pages of one listener share: the world, the kept answers, and the shell."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.headline import Headline, headline
from dlq_handler.dashboard.kept import Memory, PageOutage, Remembered, WorkersKept
from dlq_handler.dashboard.shell import Shell, render
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.diagnosis.since import beginnings_of, with_beginnings
from dlq_handler.diagnosis.view import Unknown, View, without_database
from dlq_handler.web.guard import csrf_of
from dlq_handler.web.users import User
from dlq_handler.web.world import UiWorld

Facts = TypeVar("Facts")

# The pages that show a moment of the past.
_OF_PAST = ("/", "/letters")
_FIRST_VIEW_SECONDS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    world: UiWorld
    memory: Memory = field(default_factory=Memory)

    async def wait_for_view(self) -> None:
        """The listener starts before the last shared view is read: a page of this second waits for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_VIEW_SECONDS):
                while self.world.diagnoser.latest is None:  # noqa: ASYNC110  # set by the loop of another thread
                    await asyncio.sleep(0.05)

    @property
    def now(self) -> datetime:
        return self.world.now

    @property
    def observed_at(self) -> datetime | None:
        seen = self.world.diagnoser.latest
        return None if seen is None else seen.at

    @property
    def view(self) -> View | None:
        seen = self.world.diagnoser.latest
        return None if seen is None else seen.view

    @property
    def diagnoses(self) -> Sequence[Diagnosis]:
        seen = self.world.diagnoser.latest
        return () if seen is None else seen.diagnoses

    @property
    def workers(self) -> WorkersKept | Unknown:
        """As last observed; kept for an outage of the database."""
        return self.memory.keep_workers(self.world.workers(), at=self.world.seen_at)

    @property
    def worker_names(self) -> Mapping[int, str]:
        """As last observed: names stay while workers cannot be observed."""
        seen = self.workers
        if isinstance(seen, Unknown):
            return {}
        return {one.registered.worker.id: one.registered.name for one in seen.workers}

    def seen_with(self, outage: PageOutage | None) -> tuple[View | None, Sequence[Diagnosis]]:
        """The last view, and an outage of the database that this page has found since.

        Otherwise a page would show in red that the database is unreachable, and in green that it is fine.
        """
        view, diagnoses = self.view, self.diagnoses
        if outage is None or view is None or self._database_outage_since is not None:
            return view, diagnoses
        view = without_database(
            view, error=outage.explanation, is_unreachable=outage.is_unreachable, since=outage.since
        )
        return view, with_beginnings(diagnose(view), beginnings_of(diagnoses))

    def headline(self, diagnoses: Sequence[Diagnosis] | None = None) -> Headline:
        """By the last diagnoses, unless a page has newer ones."""
        shown = self.diagnoses if diagnoses is None else diagnoses
        return headline(shown, now=self.now, link=self.world.runbook_link)

    def headline_of_past(
        self, diagnoses: Sequence[Diagnosis], at: datetime, *, is_known: bool = True
    ) -> Headline:
        """`is_known` False: the record could not be read."""
        nothing = (
            "Unknown: no diagnosis is on record of this moment."
            if is_known
            else "Unknown: the database is unavailable, so the diagnosis of this moment cannot be read."
        )
        return headline(diagnoses, now=at, link=self.world.runbook_link, nothing=nothing)

    def shell(
        self,
        request: Request,
        title: str | None = None,
        *,
        here: str | None = None,
        after: int | None = None,
        is_paused: bool = False,
    ) -> Shell:
        """Without a title of its own a page has the diagnosis: a change is visible in the tab."""
        user: User | None = getattr(request.state, "user", None)
        return Shell(
            title=title or self.headline().title,
            environment=self.world.environment,
            now=self.now,
            here=here,
            after=after,
            user=None if user is None else f"{user.name} ({user.role})",
            may_operate=user is not None and user.may_operate,
            log_out=None if getattr(request.state, "session", None) is None else csrf_of(request),
            is_paused=is_paused,
            is_of_now="at" in request.query_params and request.url.path not in _OF_PAST,
        )

    def outage_page(self, request: Request, outage: PageOutage | None, *, back: tuple[str, str]) -> Response:
        """The database is unavailable, and nothing is kept of the requested page."""
        return render("outage.html", self.shell(request), {"outage": outage, "back": back}, status=503)

    async def ask(self, page: str, asking: Callable[[], Awaitable[Facts]]) -> Remembered[Facts]:
        remembered = await self.memory.ask(page, asking, now=self.now)
        since = self._database_outage_since
        if remembered.outage is None or since is None:
            return remembered
        # For a page opened hours later the outage began at its diagnosis, not at the first request.
        return replace(remembered, outage=replace(remembered.outage, since=since))

    @property
    def _database_outage_since(self) -> datetime | None:
        """As diagnosed, on the same page; None: the last diagnosis found no outage."""
        return next((one.since for one in self.diagnoses if one.check is Check.DATABASE), None)
