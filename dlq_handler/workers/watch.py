"""Watch the workers: who is there, who has been gone for how long, whose queue nobody consumes.

Every replica watches, so that one that becomes the leader knows at once who is gone. Reads only; those who act on what
it sees check again in their own transaction.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.worker import AvailabilityPolicy, Worker
from dlq_handler.host.workers_sql import read_fleet, workers_with_dispatches
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.workers.availability import Absence, Availability, absences, is_history, standing_of
from dlq_handler.workers.sight import WorkerObservation

log = structlog.get_logger()

# Whether something is dispatched to a worker that is history all the same is looked for once a minute.
DISPATCHES_KEPT_SECONDS = 60.0

_TOLD_IDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPolicy:
    availability: AvailabilityPolicy
    confirm_after_seconds: float
    interval_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLook:
    """The workers, and the queues of those that were asked about. A queue that is left out is unknown."""

    fleet: Sequence[Worker]
    counts: Mapping[int, QueueCounts | None]
    """None: no such queue."""


class WorkerWatch:
    def __init__(
        self,
        database: Database,
        sight: WorkerObservation,
        policy: WatchPolicy,
        *,
        watched_seconds: Callable[[], float],
        metrics: Metrics,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        """`watched_seconds()`: for how long heartbeats could be seen without a break."""
        self._database, self._sight, self._policy, self._metrics = database, sight, policy, metrics
        self._watched_seconds, self._now = watched_seconds, now
        self._absences: Mapping[int, Absence] = {}
        self._was_gone: dict[int, bool] = {}
        """By worker, as far as it was ever known for certain."""
        self._with_dispatches: frozenset[int] = frozenset()
        self._dispatches_read_at = -DISPATCHES_KEPT_SECONDS
        self.availabilities: Mapping[int, Availability] | None = None
        """Of all workers that are not history, at the last look; None: nobody has looked, or can."""
        self.unattended: frozenset[int] = frozenset()
        """Workers whose queue holds messages and has no consumer, at the last look."""
        self.looked: FleetLook | None = None
        """The last look; None while the database or the broker does not answer."""

    @property
    def gone(self) -> dict[int, Worker]:
        """Workers whose absence is confirmed. Empty while we cannot tell."""
        after_seconds = self._policy.confirm_after_seconds
        return {
            one: absence.worker
            for one, absence in self._absences.items()
            if absence.is_confirmed(after_seconds=after_seconds)
        }

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._policy.interval_seconds, self.tick, stop, name="worker-watch")

    async def tick(self) -> None:
        try:
            fleet = await read_fleet(self._database)
            with_dispatches = await self._dispatches() if any(map(is_history, fleet)) else frozenset()
        except (Unavailable, Contended):
            self._absences, self.unattended, self.availabilities = {}, frozenset(), None
            self.looked = None
            self._metrics.set_workers(None)
            self._metrics.set_unattended_queues(None)
            raise
        seen = self._availabilities(fleet)
        self.availabilities = {one.id: seen[one.id] for one in fleet if not is_history(one)}
        # Where all are history nobody is left: to count none would end the alert that tells of it, after a day.
        self._metrics.set_workers(Counter((self.availabilities or seen).values()))
        self._tell_of_changes(seen)
        unavailable = (one for one in fleet if seen[one.id] is Availability.UNAVAILABLE)
        self._absences = absences(self._absences, unavailable, self._now())
        # Workers that report first: without the management API missing queues are looked for one by one.
        by_heartbeat = sorted(fleet, key=_silent_seconds)
        await self._look_at_queues(
            fleet, [one.id for one in by_heartbeat if not is_history(one) or one.id in with_dispatches]
        )

    def _availabilities(self, fleet: Sequence[Worker]) -> dict[int, Availability]:
        watched_seconds, policy = self._watched_seconds(), self._policy.availability
        return {
            one.id: standing_of(one, watched_seconds=watched_seconds, policy=policy).availability
            for one in fleet
        }

    async def _dispatches(self) -> frozenset[int]:
        now = self._now()
        if now - self._dispatches_read_at >= DISPATCHES_KEPT_SECONDS:
            self._with_dispatches = await workers_with_dispatches(self._database)
            self._dispatches_read_at = now
        return self._with_dispatches

    def _tell_of_changes(self, seen: Mapping[int, Availability]) -> None:
        """Only of changes: the first certain sight of a worker is none, nor is it one that we could not tell."""
        is_gone = {
            one: availability is Availability.UNAVAILABLE
            for one, availability in seen.items()
            if availability is not Availability.UNKNOWN
        }
        changed = [one for one, gone in is_gone.items() if self._was_gone.get(one, gone) != gone]
        self._was_gone = {one: gone for one, gone in self._was_gone.items() if one in seen} | is_gone
        went = [one for one in changed if is_gone[one]]
        returned = [one for one in changed if not is_gone[one]]
        if went:
            log.warning("worker.unavailable", count=len(went), worker_ids=_first(went))
        if returned:
            log.info("worker.returned", count=len(returned), worker_ids=_first(returned))

    async def _look_at_queues(self, fleet: Sequence[Worker], asked: Collection[int]) -> None:
        counted = await self._sight.count(asked)
        self.looked = None if self._sight.broker_trouble else FleetLook(fleet=fleet, counts=counted)
        self.unattended = frozenset(
            one for one, counts in counted.items() if counts and counts.ready and not counts.consumers
        )
        is_whole = len(counted) == len(asked)
        self._metrics.set_unattended_queues(len(self.unattended) if is_whole else None)


def _silent_seconds(worker: Worker) -> float:
    age = worker.heartbeat_age_seconds
    return float("inf") if age is None else age


def _first(worker_ids: Collection[int]) -> list[int]:
    return sorted(worker_ids)[:_TOLD_IDS]
