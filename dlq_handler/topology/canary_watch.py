"""Have canaries sent in rotation, and tell whether they arrive. One replica sends; every replica decides.

Promises: which replica takes a canary does not matter, for what was seen is shared; a change is told once; a canary
that is lost makes nobody unready, but has the topology put back at once. Never: says "ok" of what it cannot know.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.health import Readiness
from dlq_handler.host.workers_sql import read_fleet
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.topology import canary_sql as store
from dlq_handler.topology.canary_queue import CanaryRefused
from dlq_handler.topology.canary_sender import CanarySender
from dlq_handler.topology.decide_canary import (
    CanaryPolicy,
    CanaryState,
    IntakeView,
    Probe,
    WorkerCanary,
    choose_due,
    count_by_state,
    decide_canaries,
    describe_canaries,
    longest,
    worst_of,
)
from dlq_handler.workers.availability import is_history

log = structlog.get_logger()

NOTE = "canary"

# A right that is missing may be given while we run. Each try leaves a line in the broker's log.
TRY_REFUSED_AGAIN_SECONDS = 300.0

_TOLD_IDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryWatchPolicy:
    decide: CanaryPolicy
    queue: str
    """The intake queue that canaries are to arrive in."""


class CanaryWatch:
    def __init__(
        self,
        database: Database,
        sender: CanarySender,
        policy: CanaryWatchPolicy,
        *,
        leadership: Leadership,
        view: Callable[[], IntakeView],
        bound_workers: Callable[[], Collection[int]],
        on_lost: Callable[[], None],
        readiness: Readiness,
        metrics: Metrics,
    ) -> None:
        """`bound_workers()`: whose keys we have bound. One that has just registered is no hole yet."""
        self._database, self._sender, self._policy = database, sender, policy
        self._leadership, self._view, self._bound_workers = leadership, view, bound_workers
        self._on_lost, self._readiness, self._metrics = on_lost, readiness, metrics
        self._lost: set[int] = set()
        self._refused: str | None = None
        self._refused_until = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        wake = asyncio.Event()
        self._leadership.wake_when_taken(wake)
        await every(self._policy.decide.round_seconds, self.tick, stop, name="canary", wake=wake)

    async def tick(self) -> None:
        try:
            fleet = await read_fleet(self._database)
            bound = self._bound_workers()
            workers = [one.id for one in fleet if one.id in bound and not is_history(one)]
            probes = await store.read_probes(self._database, self._policy.queue)
        except (Unavailable, Contended) as error:
            self._metrics.set_canaries(None)
            self._readiness.note(NOTE, f"unknown: {error}")
            raise
        self._tell(self._decide(probes, workers))
        # Should that fail, what was decided stands: a canary that is lost stays so, and all grow old if none goes out.
        await self._send(choose_due(workers, probes, self._policy.decide), len(workers))

    def _decide(self, probes: Sequence[Probe], workers: Collection[int]) -> list[WorkerCanary]:
        return decide_canaries(probes, workers, self._view(), self._policy.decide, queue=self._policy.queue)

    async def _send(self, due: Collection[int], workers: int) -> None:
        """Only while we consume: what nobody takes would pile up in the intake queue."""
        is_on = self._leadership.is_leader and self._view().consuming_seconds > 0
        if not (due and is_on and monotonic_seconds() >= self._refused_until):
            return
        # Before anything is sent: each round writes probes down, also one that the broker then takes none of.
        fresh_seconds = self._policy.decide.fresh_seconds(workers, ttl_seconds=0)
        await store.delete_old(self._database, self._policy.queue, fresh_seconds=fresh_seconds)
        try:
            await self._sender.send(due)
        except CanaryRefused as refused:
            if self._refused is None:
                log.warning("canary.refused", error=str(refused), setting="dlq_handler.canary.enabled")
            self._refused = str(refused)
            self._refused_until = monotonic_seconds() + TRY_REFUSED_AGAIN_SECONDS
            return
        self._refused = None

    def _tell(self, canaries: Sequence[WorkerCanary]) -> None:
        self._metrics.set_canaries(
            count_by_state(canaries),
            oldest_age_seconds=longest(one.seen_seconds_ago for one in canaries),
            slowest_seconds=longest(one.took_seconds for one in canaries),
        )
        words = f"{worst_of(canaries)}: {describe_canaries(canaries)}"
        self._readiness.note(NOTE, f"{words}; {self._refused}" if self._refused else words)
        lost = {one.worker_id for one in canaries if one.state is CanaryState.LOST}
        arrived = {one.worker_id for one in canaries if one.state is CanaryState.OK}
        went, returned = lost - self._lost, self._lost & arrived
        # A worker that is history by now is not waited for.
        self._lost = (self._lost | lost) & {one.worker_id for one in canaries} - arrived
        if went:
            explanation = next(one.explanation for one in canaries if one.worker_id in went)
            log.error("canary.lost", count=len(went), worker_ids=_first(went), explanation=explanation)
            self._on_lost()
        if returned:
            log.info("canary.recovered", count=len(returned), worker_ids=_first(returned))


class CanaryRecorder:
    """Records which canaries this replica received from the intake queue."""

    def __init__(self, database: Database, *, queue: str, replica: str) -> None:
        self._database, self._queue, self._replica = database, queue, replica

    async def record_received(self, canary_ids: Collection[UUID]) -> None:
        if canary_ids:
            await store.mark_seen(self._database, canary_ids, queue=self._queue, by=self._replica)


def _first(worker_ids: Collection[int]) -> list[int]:
    return sorted(worker_ids)[:_TOLD_IDS]
