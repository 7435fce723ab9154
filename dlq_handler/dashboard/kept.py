"""Answers of the database that the pages keep for an outage, when operators need them most.

Promises: a page that was shown once is shown again from memory, with the time its figures are from; memory is bounded.
Never: shows old figures as new ones.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from dlq_handler.diagnosis.view import ObservedWorker, Unknown
from dlq_handler.errors import Contended, RowRefused, Unavailable, Unreachable

MOST_KEPT = 100
WITHIN_SECONDS = 5.0

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOutage:
    """The database did not answer."""

    explanation: str
    is_unreachable: bool
    """False: it answers, and refuses."""
    since: datetime
    """The first request without an answer, or the time of the diagnosis if that is earlier."""
    kept_at: datetime | None
    """When the figures that are shown were read; None: there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered(Generic[Facts]):
    facts: Facts | None
    """None: it does not answer, and nothing is kept of this page."""
    outage: PageOutage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersKept:
    workers: Sequence[ObservedWorker]
    at: datetime
    """When they were seen."""
    unseen: str | None = None
    """Why the last view does not have them; None: it has."""


class Memory:
    def __init__(self, *, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[str, tuple[object, datetime]] = OrderedDict()
        self._outage_since: datetime | None = None
        self._workers: WorkersKept | None = None

    def keep_workers(
        self, workers: Sequence[ObservedWorker] | Unknown, *, at: datetime
    ) -> WorkersKept | Unknown:
        """As last observed: during an outage of the database they cannot be observed."""
        if isinstance(workers, Unknown):
            return workers if self._workers is None else replace(self._workers, unseen=workers.explanation)
        self._workers = WorkersKept(workers=workers, at=at)
        return self._workers

    async def ask(
        self, page: str, asking: Callable[[], Awaitable[Facts]], *, now: datetime
    ) -> Remembered[Facts]:
        """`page` identifies the question, with everything that the answer depends on."""
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                facts = await asking()
        except TimeoutError:
            return self._recall(page, f"No answer within {WITHIN_SECONDS:g} s.", now, is_unreachable=True)
        except (Unavailable, Contended, RowRefused) as error:
            return self._recall(page, str(error), now, is_unreachable=isinstance(error, Unreachable))
        self._outage_since = None
        self._kept[page] = (facts, now)
        self._kept.move_to_end(page)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return Remembered(facts=facts)

    def kept_at(self, page: str) -> datetime | None:
        """When that was last answered; None: never, or it is forgotten."""
        kept = self._kept.get(page)
        return None if kept is None else kept[1]

    def _recall(
        self, page: str, explanation: str, now: datetime, *, is_unreachable: bool
    ) -> Remembered[Facts]:
        self._outage_since = self._outage_since or now
        facts, kept_at = self._kept.get(page, (None, None))
        outage = PageOutage(
            explanation=explanation, is_unreachable=is_unreachable, since=self._outage_since, kept_at=kept_at
        )
        # What was kept under this name was answered to the same question, so it is of the same kind.
        return Remembered(facts=facts, outage=outage)  # type: ignore[arg-type]  # the dict knows no page
