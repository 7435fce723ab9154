"""Watch the workers: their availability, since when one is unavailable, and whose queue has no consumer. On the leader.

Reads only. Services that act on its results check again in their own transaction. Counting the queues of a large fleet
costs the broker seconds, so that is spaced by its cost.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.worker import AvailabilityPolicy, Worker
from dlq_handler.host.workers_sql import read_fleet, workers_with_dispatches
from dlq_handler.loop import Pace, every
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.workers.availability import (
    HISTORY_AFTER_SECONDS,
    Absence,
    Availability,
    absences,
    began_at,
    is_silent_for_a_day,
    standing_of,
)
from dlq_handler.workers.queue_observer import WorkerQueueObserver

log = structlog.get_logger()

INTERVAL_SECONDS = 10.0

# A queue without a consumer counts as such until the next count.
MOST_COUNT_SECONDS = 120.0

# The statement reads every scheduled execution.
DISPATCHES_KEPT_SECONDS = 60.0

_LOGGED_IDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCounts:
    """The workers, and the queues that were counted with them. A queue that is left out is unknown."""

    fleet: Sequence[Worker]
    counts: Mapping[int, QueueCounts | None]
    """None: no such queue."""


class WorkerWatch:
    def __init__(
        self,
        database: Database,
        observer: WorkerQueueObserver,
        leadership: Leadership,
        gate: Gate,
        *,
        availability: AvailabilityPolicy,
        confirm_after_seconds: float,
        metrics: Metrics,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._database, self._observer, self._leadership, self._gate = database, observer, leadership, gate
        self._availability, self._confirm_after_seconds = availability, confirm_after_seconds
        self._metrics, self._now = metrics, now
        self._absences: Mapping[int, Absence] = {}
        self._was_unavailable: dict[int, bool] = {}
        """By worker, as far as it was ever known."""
        self._with_dispatches: frozenset[int] = frozenset()
        self._dispatches_read_at = -DISPATCHES_KEPT_SECONDS
        self._pace = Pace(most_seconds=MOST_COUNT_SECONDS, now=now)
        self.availabilities: Mapping[int, Availability] | None = None
        """Of all workers that sent a heartbeat within a day; None: unknown, or another replica leads."""
        self.began_at: Mapping[int, datetime] = {}
        """Since when each worker has this availability, as far as its heartbeat dates it."""
        self.unattended: frozenset[int] = frozenset()
        """Workers whose queue holds messages and has no consumer."""
        self.fleet_counts: FleetCounts | None = None
        """The last count of the queues; None while the database or the broker does not answer."""

    @property
    def unavailable(self) -> dict[int, Worker]:
        """Workers that are confirmed as unavailable. Empty while that is unknown."""
        return {
            one: absence.worker
            for one, absence in self._absences.items()
            if absence.is_confirmed(after_seconds=self._confirm_after_seconds)
        }

    async def run(self, stop: asyncio.Event) -> None:
        wake = asyncio.Event()
        self._leadership.wake_when_taken(wake)
        await every(INTERVAL_SECONDS, self.tick, stop, name="worker-watch", wake=wake)

    async def tick(self) -> None:
        if not self._leadership.is_leader:
            self._forget()
            return
        try:
            fleet = await self._read_fleet()
        except (Unavailable, Contended):
            self._forget()
            raise
        seen = {
            one.id: standing_of(
                one, watched_seconds=self._gate.watched_seconds, policy=self._availability
            ).availability
            for one in fleet
        }
        self.availabilities = {one.id: seen[one.id] for one in fleet if not is_silent_for_a_day(one)}
        self.began_at = {
            one.id: began
            for one in fleet
            if (began := began_at(one, seen[one.id], self._availability)) is not None
        }
        # Without a heartbeat for a day from any worker, all are counted: with none the alert would end after a day.
        self._metrics.set_workers(Counter((self.availabilities or seen).values()))
        self._log_changes(seen)
        unavailable = (one for one in fleet if seen[one.id] is Availability.UNAVAILABLE)
        self._absences = absences(self._absences, unavailable, self._now())
        if self._pace.is_due:
            with self._pace.measure():
                await self._count_queues(fleet)

    def _forget(self) -> None:
        self._absences, self.unattended, self.availabilities, self.fleet_counts = {}, frozenset(), None, None
        self._metrics.set_workers(None)
        self._metrics.worker_queues_unattended.set(None)

    async def _read_fleet(self) -> list[Worker]:
        """Workers with a heartbeat within a day, or with dispatches. All, if there is none of the first."""
        now = self._now()
        if now - self._dispatches_read_at >= DISPATCHES_KEPT_SECONDS:
            self._with_dispatches = await workers_with_dispatches(self._database)
            self._dispatches_read_at = now
        fleet = await read_fleet(
            self._database, heard_within_seconds=HISTORY_AFTER_SECONDS, also=self._with_dispatches
        )
        return (
            fleet if any(not is_silent_for_a_day(one) for one in fleet) else await read_fleet(self._database)
        )

    def _log_changes(self, seen: Mapping[int, Availability]) -> None:
        """Changes only. The first known state, and unknown states, are not changes."""
        is_unavailable = {
            one: availability is Availability.UNAVAILABLE
            for one, availability in seen.items()
            if availability is not Availability.UNKNOWN
        }
        changed = [one for one, now in is_unavailable.items() if self._was_unavailable.get(one, now) != now]
        kept = {one: before for one, before in self._was_unavailable.items() if one in seen}
        self._was_unavailable = kept | is_unavailable
        lost = [one for one in changed if is_unavailable[one]]
        returned = [one for one in changed if not is_unavailable[one]]
        if lost:
            log.warning("worker.unavailable", count=len(lost), worker_ids=_first(lost))
        if returned:
            log.info("worker.returned", count=len(returned), worker_ids=_first(returned))

    async def _count_queues(self, fleet: Sequence[Worker]) -> None:
        # Workers with the newest heartbeat first: without the management API missing queues are found one by one.
        asked = [
            one.id
            for one in sorted(fleet, key=_silent_seconds)
            if not is_silent_for_a_day(one) or one.id in self._with_dispatches
        ]
        counted = await self._observer.count(asked)
        self.fleet_counts = None if self._observer.broker_error else FleetCounts(fleet=fleet, counts=counted)
        self.unattended = frozenset(
            one for one, counts in counted.items() if counts and counts.ready and not counts.consumers
        )
        is_whole = len(counted) == len(asked)
        self._metrics.worker_queues_unattended.set(len(self.unattended) if is_whole else None)


def _silent_seconds(worker: Worker) -> float:
    age = worker.heartbeat_age_seconds
    return float("inf") if age is None else age


def _first(worker_ids: Collection[int]) -> list[int]:
    return sorted(worker_ids)[:_LOGGED_IDS]
