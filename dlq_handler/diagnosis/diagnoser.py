"""Diagnose every few seconds and keep the answer: however many people look, the servers are asked once.

Every replica does, so that each can show its own; the leader puts changes on record, where all find the night in the
morning. What the leader saw while the database was away goes on record when it is back.
Never: acts on what it sees.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.transaction import Transaction
from dlq_handler.diagnosis import diagnoses_sql as store
from dlq_handler.diagnosis.collector import answered
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.diagnosis.patience import Lacks, Patience
from dlq_handler.diagnosis.services import ServiceFinding, count_services
from dlq_handler.diagnosis.since import dated, ill_since, is_change, is_due, recalled
from dlq_handler.diagnosis.view import DatabaseSeen, OwnLink, Unknown, View
from dlq_handler.diagnosis.view_in_outage import unseen, without_database
from dlq_handler.history import events_sql
from dlq_handler.history.event import DIAGNOSIS_CHANGED, Topic
from dlq_handler.loop import every
from dlq_handler.text import in_units

# Of a night without a database the first changes tell what happened, and the last ones how it ended.
MOST_KEPT = 20

# Longer than a look may take in which no question has an answer in time.
TOO_OLD_SECONDS = 90.0

# Whoever typed a command waits for the diagnosis, not for its date.
RECORD_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    view: View
    diagnoses: tuple[Diagnosis, ...]
    at: datetime
    """By the database's clock, or this machine's while it does not answer."""
    taken_at: float
    """The process clock: tells how old it is by now."""


class Diagnoser:
    def __init__(
        self,
        database: Database,
        *,
        look: Callable[[], Awaitable[View]],
        leadership: Leadership,
        replica: str,
        patience: Patience,
        own_link: Callable[[], OwnLink] = OwnLink,
        interval_seconds: float = 10.0,
    ) -> None:
        """`own_link()`: what this process knows of its own connections."""
        self._database, self._look, self._leadership = database, look, leadership
        self._replica, self._interval_seconds = replica, interval_seconds
        self._patience, self._lacks, self._own_link = patience, Lacks(), own_link
        self._latest: Seen | None = None
        self._ill_since: dict[str, datetime] = {}
        self._has_recalled = False
        self._unwritten: deque[Seen] = deque(maxlen=MOST_KEPT)

    @property
    def latest(self) -> Seen | None:
        """None: before the first look.

        An outage of the database that was found since then is included. A look that is too old counts as unknown: looks
        that fail, for whatever reason, must not leave green what was green.
        """
        seen = self._latest
        if seen is None:
            return None
        outage = self._database.outage
        if outage is not None and _has_database(seen.view):
            view = without_database(seen.view, trouble=outage.what, since=outage.since)
            return replace(seen, view=view, diagnoses=dated(diagnose(view), self._ill_since, at=seen.at)[0])
        age = monotonic_seconds() - seen.taken_at
        if age <= max(TOO_OLD_SECONDS, 3 * self._interval_seconds):
            return seen
        view = unseen(
            seen.view, f"the last look was {in_units(age)} ago; the log of {self._replica} says why"
        )
        return replace(seen, view=view, diagnoses=diagnose(view))

    @latest.setter
    def latest(self, seen: Seen | None) -> None:
        self._latest = seen

    def count_services(self) -> Mapping[ServiceFinding, int | None]:
        """Services of the host that have to be restarted, as of the last look; empty before the first one."""
        seen = self.latest
        return {} if seen is None else count_services(seen.view)

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="diagnoser")

    async def tick(self) -> None:
        view = self._with_own(await self._look())
        if not self._has_recalled and _has_database(view):
            await self._recall(view.at)
        diagnoses, self._ill_since = dated(diagnose(view), self._ill_since, at=view.at)
        seen = Seen(view=view, diagnoses=diagnoses, at=view.at, taken_at=monotonic_seconds())
        self.latest = seen
        if not _has_database(view):
            if not self._unwritten or is_change(self._unwritten[-1].diagnoses, diagnoses):
                self._unwritten.append(seen)
        elif self._leadership.is_leader:
            await self._put_on_record(seen)

    def _with_own(self, view: View) -> View:
        """What a command cannot know: that a sidecar runs, this one, and is about to get what it lacks."""
        now = monotonic_seconds()
        self._lacks = self._lacks.after(view, now)
        return replace(view, own=replace(self._lacks.seen(now, self._patience), link=self._own_link()))

    async def _recall(self, at: datetime) -> None:
        """What others saw before this process was: a problem does not begin anew because we did."""
        self._ill_since = await _on_record(self._database, at) | self._ill_since
        self._has_recalled = True

    async def _put_on_record(self, seen: Seen) -> None:
        async with self._database.transaction() as tx:
            # Two that take themselves for the leader do not both tell of it.
            await events_sql.take_turn(tx)
            last = await store.last(tx)
            for one in (*self._unwritten, seen):
                if last is None or one.at > last[0]:
                    last = await self._record(tx, last, one)
        self._unwritten.clear()

    async def _record(
        self, tx: Transaction, last: tuple[datetime, list[Diagnosis]] | None, seen: Seen
    ) -> tuple[datetime, list[Diagnosis]] | None:
        is_news = is_change(last[1] if last else None, seen.diagnoses)
        if not is_news and last is not None and not is_due(last[1], last[0], seen.diagnoses, seen.at):
            return last
        await store.record_change(tx, seen.diagnoses, at=seen.at)
        worst = seen.diagnoses[0]
        await events_sql.tell(
            tx,
            topic=Topic.DIAGNOSIS,
            kind=DIAGNOSIS_CHANGED,
            subject=worst.kind,
            detail=worst.health.value,
            replica=self._replica,
            at=seen.at,
        )
        return seen.at, list(seen.diagnoses)


async def diagnose_once(view: View, database: Database) -> tuple[Diagnosis, ...]:
    """For a command: since when is told by what the sidecars have put on record, if that can be read."""
    known: dict[str, datetime] | Unknown = {}
    if _has_database(view):
        known = await answered(_on_record(database, view.at), within_seconds=RECORD_SECONDS)
    return recalled(diagnose(view), {} if isinstance(known, Unknown) else known)


async def _on_record(database: Database, at: datetime) -> dict[str, datetime]:
    recorded = await store.as_of(database, at)
    return ill_since(recorded[1]) if recorded else {}


def _has_database(view: View) -> bool:
    return isinstance(view.database, DatabaseSeen) and view.database.trouble is None
