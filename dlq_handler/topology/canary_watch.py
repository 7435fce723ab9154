"""Send canaries in rotation, and check whether they arrive. On the leader.

Promises: any replica may receive a canary, because they share what was received. A change is logged once. A lost canary
makes no replica unready, but has the bindings applied again at once. Never: reports "ok" of an unknown route.
"""

import asyncio
from collections.abc import Collection, Sequence
from uuid import UUID

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.workers_sql import read_fleet
from dlq_handler.loop import Pace, every
from dlq_handler.metrics import Metrics
from dlq_handler.topology import canary_sql as store
from dlq_handler.topology.canary import (
    CanaryState,
    Probe,
    WorkerCanary,
    choose_due,
    count_by_state,
    decide_canaries,
    longest,
)
from dlq_handler.topology.canary_sender import CanaryRefused, CanarySender
from dlq_handler.topology.intake_watch import IntakeWatch
from dlq_handler.topology.keeper import TopologyKeeper
from dlq_handler.topology.options import ROUND_SIZE, CanaryOptions
from dlq_handler.workers.availability import HISTORY_AFTER_SECONDS

log = structlog.get_logger()

# A missing right may be granted meanwhile. Each attempt leaves a line in the broker's log.
TRY_REFUSED_AGAIN_SECONDS = 300.0

MOST_AT_ONCE = 200

_LOGGED_IDS = 20


class CanaryWatch:
    def __init__(
        self,
        database: Database,
        sender: CanarySender,
        options: CanaryOptions,
        *,
        leadership: Leadership,
        intake: IntakeWatch,
        keeper: TopologyKeeper,
        metrics: Metrics,
    ) -> None:
        self._database, self._sender, self._options = database, sender, options
        self._leadership, self._intake, self._keeper = leadership, intake, keeper
        self._metrics = metrics
        self._lost: set[int] = set()
        self._is_refused = False
        self._refused_until = float("-inf")
        self._pace = Pace(most_seconds=options.longest_pause_seconds)
        self._sent_at = monotonic_seconds() - options.round_seconds

    async def run(self, stop: asyncio.Event) -> None:
        wake = asyncio.Event()
        self._leadership.wake_when_taken(wake)
        await every(self._options.round_seconds, self._tick_at_pace, stop, name="canary", wake=wake)

    async def _tick_at_pace(self) -> None:
        if self._pace.is_due or not self._leadership.is_leader:
            with self._pace.measure():
                await self.tick()

    async def tick(self) -> None:
        if not self._leadership.is_leader:
            self._metrics.set_canaries(None)
            return
        try:
            async with self._database.one_transaction():
                fleet = await read_fleet(self._database, heard_within_seconds=HISTORY_AFTER_SECONDS)
                probes = await store.read_probes(self._database, self._sender.queue)
        except (Unavailable, Contended):
            self._metrics.set_canaries(None)
            raise
        # A worker that has just registered has no broken route yet.
        workers = [one.id for one in fleet if one.id in self._keeper.bound_workers]
        # In a thread: for thousands of workers this takes a tenth of a second.
        canaries = await asyncio.to_thread(
            decide_canaries, probes, workers, self._intake.view, self._options, queue=self._sender.queue
        )
        self._report(canaries)
        # A failure here changes nothing of what was decided: a lost canary stays lost, and all grow old.
        await self._send(workers, probes)

    async def _send(self, workers: Collection[int], probes: Sequence[Probe]) -> None:
        """Only while this replica consumes: canaries that no replica takes would pile up in the intake queue."""
        now = monotonic_seconds()
        if self._intake.view.consuming_seconds <= 0 or now < self._refused_until:
            return
        # Rounds that the pace has left out are made up for: the number sent in an hour does not depend on it.
        rounds = max(1, round((now - self._sent_at) / self._options.round_seconds))
        most = min(MOST_AT_ONCE, ROUND_SIZE * rounds)
        due = choose_due(workers, probes, interval_seconds=self._options.interval_seconds, most=most)
        if not due:
            return
        self._sent_at = now
        # Before anything is sent: each round writes canaries, also one that the broker then accepts none of.
        fresh_seconds = self._options.fresh_seconds(len(workers), ttl_seconds=0)
        await store.delete_old(self._database, self._sender.queue, fresh_seconds=fresh_seconds)
        try:
            await self._sender.send(due)
        except CanaryRefused as refused:
            if not self._is_refused:
                log.warning("canary.refused", error=str(refused), setting="dlq_handler.canary.enabled")
            self._is_refused = True
            self._refused_until = monotonic_seconds() + TRY_REFUSED_AGAIN_SECONDS
            return
        self._is_refused = False

    def _report(self, canaries: Sequence[WorkerCanary]) -> None:
        self._metrics.set_canaries(
            count_by_state(canaries),
            oldest_age_seconds=longest(one.seen_seconds_ago for one in canaries),
            slowest_seconds=longest(one.took_seconds for one in canaries),
        )
        lost = {one.worker_id for one in canaries if one.state is CanaryState.LOST}
        arrived = {one.worker_id for one in canaries if one.state is CanaryState.OK}
        went, returned = lost - self._lost, self._lost & arrived
        # A worker that was silent for a day meanwhile is not waited for.
        self._lost = (self._lost | lost) & {one.worker_id for one in canaries} - arrived
        if went:
            explanation = next(one.explanation for one in canaries if one.worker_id in went)
            log.error("canary.lost", count=len(went), worker_ids=_first(went), explanation=explanation)
            self._keeper.reapply_now()
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
    return sorted(worker_ids)[:_LOGGED_IDS]
