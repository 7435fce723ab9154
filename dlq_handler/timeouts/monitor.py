"""The timeout monitor: scan for executions that no letter will ever tell of, on the one replica that leads.

A scan goes through scheduled, running and canceling executions, oldest first, page by page, each row once; what
becomes of a page is `decide_stale`'s business. Two pages are in hand at once: while the database writes one, the other
is read and decided here. A scan ends early when another replica leads, the brake is tripped, a server is unavailable or
the process stops. The next one starts from the oldest again.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from dlq_handler.broker.consume.drain_tracker import DrainTracker
from dlq_handler.broker.publish.publishes import PublishView
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership, LeaseLost
from dlq_handler.database.worst_error import worst_error
from dlq_handler.errors import Contended
from dlq_handler.host import executions_sql, workers_sql
from dlq_handler.host import stale_sql as stale
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.stale_sql import Candidate
from dlq_handler.host.worker import by_heartbeat, is_unavailable
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts.case import RUN_GRACE_SECONDS, StalePolicy, later
from dlq_handler.timeouts.cases import MonitorObservation, Processes, Sights
from dlq_handler.timeouts.commit import Page, StaleDecider
from dlq_handler.timeouts.decide import SCANNED
from dlq_handler.workers.connection import ProcessView
from dlq_handler.workers.look import WorkerLook
from dlq_handler.workers.processes import WorkerProcesses

log = structlog.get_logger()

LOOP = "timeout-monitor"
PAGES_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorPolicy:
    interval_seconds: float
    page_size: int
    stale: StalePolicy


@dataclass(slots=True, kw_only=True)
class _Scan:
    began_at: datetime
    """By the database's clock: rows that move later are left to the next scan."""
    spared: Collection[int]
    """Workers that are not unavailable."""
    fleet: Sequence[int] = ()
    """All workers, those first whose queue most likely exists."""
    intake_undrained_seconds: float | None = None
    """None: the intake is drained, or there is none here."""
    processes: Processes = field(default_factory=dict)
    looks: dict[int, WorkerLook] = field(default_factory=dict)
    without_queue: set[int] = field(default_factory=set)
    """Workers whose queue this scan has found missing. The broker is asked once: each question is an error in its log.
    It proves as much for a later page, because all executions of the scan are older than the scan.
    """
    ended: int = 0
    left_out: int = 0
    """Those that the brake had no room for."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Through the executions in one status. Pages are found one after the other, each behind the last."""

    scan: _Scan
    status: ExecutionStatus
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    behind: Candidate | None = None
    is_over: bool = False


class TimeoutMonitor:
    def __init__(
        self,
        database: Database,
        policy: MonitorPolicy,
        *,
        decide: StaleDecider,
        leadership: Leadership,
        gate: Gate,
        sight: MonitorObservation,
        metrics: Metrics,
        publishes: Callable[[], PublishView],
        intake: DrainTracker | None = None,
        processes: WorkerProcesses | None = None,
    ) -> None:
        """
        `intake` None: this replica takes no dead letters, so there is nothing to wait for. `processes` None: the
        connections of workers say nothing about their processes. `publishes` reads the record of own publishes.
        """
        self._publishes = publishes
        self._processes = processes
        self._database, self._policy, self._decide = database, policy, decide
        self._leadership, self._gate, self._sight = leadership, gate, sight
        self._metrics, self._intake = metrics, intake
        self._began_at = float("-inf")
        self._is_waiting = False
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        leadership.wake_when_taken(self._wake)
        if intake is not None:
            intake.wake_when_drained(self._wake)

    async def run(self, stop: asyncio.Event) -> None:
        self._stop, self._began_at = stop, monotonic_seconds()
        interval_seconds = self._policy.interval_seconds
        await every(interval_seconds, self.tick, stop, name=LOOP, wake=self._wake)

    async def tick(self) -> None:
        """One scan, if we lead."""
        if not self._leadership.is_leader:
            return
        self._gate.check()
        undrained_seconds = self._undrained_seconds()
        if self._must_wait_for_intake(undrained_seconds):
            return
        started = monotonic_seconds()
        scan = await self._begin(undrained_seconds)
        try:
            if self._processes is not None:
                scan.processes = await self._processes.look(scan.spared, checked_at=scan.began_at)
            for status in SCANNED:
                await self._scan(scan, status)
        except LeaseLost as error:
            log.info("scan.ended_early", error=error.what)
        except Contended as error:
            log.info("scan.ended_early", error=str(error))
        seconds = monotonic_seconds() - started
        self._metrics.scan_seconds.observe(seconds)
        if scan.ended or scan.left_out:
            log.info("scan.finished", ended=scan.ended, left_out=scan.left_out, seconds=round(seconds, 3))

    def _undrained_seconds(self) -> float | None:
        """Not counting the time before this monitor began: the intake waits for the servers as the monitor does."""
        seconds = self._intake.undrained_seconds if self._intake is not None else None
        return None if seconds is None else min(seconds, monotonic_seconds() - self._began_at)

    def _must_wait_for_intake(self, undrained_seconds: float | None) -> bool:
        """For one deadline at most: the backstop must not stop with what it backs."""
        deadline_seconds = self._policy.stale.horizon_seconds
        must_wait = undrained_seconds is not None and undrained_seconds < deadline_seconds
        if must_wait and not self._is_waiting:
            log.info("scan.delayed", until="the intake is drained", at_most_seconds=deadline_seconds)
        self._is_waiting = must_wait
        return must_wait

    async def _begin(self, undrained_seconds: float | None) -> _Scan:
        async with self._database.transaction() as tx:
            now = (await executions_sql.read_executions(tx, ())).now
            workers = await workers_sql.read_workers(tx)
        availability, watched_seconds = self._policy.stale.availability, self._gate.watched_seconds
        spared = [
            worker.id
            for worker in workers.values()
            if not is_unavailable(worker, link_age_seconds=watched_seconds, policy=availability)
        ]
        return _Scan(
            began_at=now,
            intake_undrained_seconds=undrained_seconds,
            spared=spared,
            fleet=by_heartbeat(workers.values()),
        )

    async def _scan(self, scan: _Scan, status: ExecutionStatus) -> None:
        walk = _Walk(scan=scan, status=status)
        hands = [self._take_pages(walk) for _ in range(PAGES_AT_ONCE)]
        # Not a group that ends all at the first error: a page that is being committed is told of and announced.
        ended = await asyncio.gather(*hands, return_exceptions=True)
        errors = [failed for failed in ended if failed is not None]
        if errors:
            raise worst_error(errors, loop=LOOP)

    async def _take_pages(self, walk: _Walk) -> None:
        try:
            while await self._take_page(walk):
                pass
        finally:
            walk.is_over = True

    async def _take_page(self, walk: _Walk) -> bool:
        """False when there is none left to take."""
        async with walk.turn:
            page = await self._next_page(walk)
            if page is None:
                return False
            if not page.worker_ids <= walk.scan.looks.keys():
                # Alone with its looks: of two pages with a look at one worker, one would wait for the other's commit.
                await self._commit(page, walk)
                return True
        await self._commit(page, walk)
        return True

    async def _next_page(self, walk: _Walk) -> Page | None:
        if walk.is_over or self._stop.is_set():
            return None
        candidates = await self._find(walk.scan, walk.status, walk.behind)
        walk.is_over = len(candidates) < self._policy.page_size
        if not candidates:
            return None
        walk.behind = candidates[-1]
        return Page(
            candidates=candidates,
            sights=await self._ask_broker(walk.scan, walk.status, candidates),
            looks=walk.scan.looks,
            processes=walk.scan.processes,
            intake_undrained_seconds=walk.scan.intake_undrained_seconds,
            longest_ttl_ms=await self._longest_ttl_ms(walk.scan, candidates)
            if walk.status is ExecutionStatus.SCHEDULED
            else None,
        )

    async def _commit(self, page: Page, walk: _Walk) -> None:
        committed = await self._decide.commit(page)
        walk.scan.ended += committed.ended
        walk.scan.left_out += committed.left_out
        if committed.left_out:
            # All the others would be left out too, page after page.
            walk.is_over = True
        if committed.too_slow is not None:
            raise committed.too_slow

    async def _find(self, scan: _Scan, status: ExecutionStatus, behind: Candidate | None) -> list[Candidate]:
        async with self._database.transaction() as tx:
            return await stale.page(
                tx,
                status,
                not_after=scan.began_at - timedelta(seconds=self._least_age_seconds(status)),
                behind=behind,
                limit=self._policy.page_size,
                spared=scan.spared,
                doubted=stale.DoubtedRuns(
                    processes={one: _doubted(process) for one, process in scan.processes.items()},
                    run_limit_seconds=self._policy.stale.run_limit_seconds,
                    grace_seconds=RUN_GRACE_SECONDS,
                ),
            )

    def _least_age_seconds(self, status: ExecutionStatus) -> float:
        """No execution in this status can be stale before this age."""
        policy = self._policy.stale
        return {
            ExecutionStatus.SCHEDULED: policy.horizon_seconds,
            ExecutionStatus.CANCELING: policy.canceling_timeout_seconds,
        }.get(status, 0.0)

    async def _ask_broker(
        self, scan: _Scan, status: ExecutionStatus, candidates: Collection[Candidate]
    ) -> Sights:
        """Only a scheduled one has a message that may be in a queue."""
        if status is not ExecutionStatus.SCHEDULED:
            return {}
        worker_ids = {one.worker_id for one in candidates if one.worker_id is not None}
        missing, rest = worker_ids & scan.without_queue, worker_ids - scan.without_queue
        undecidable = self._undecidable(scan, candidates) & rest
        quiet = await self._sight.look_quietly(undecidable) if undecidable else {}
        found = {one: queue for one, queue in quiet.items() if queue is not None}
        sights = await self._sight.look(rest - undecidable) if rest - undecidable else {}
        scan.without_queue |= {one for one, queue in sights.items() if queue is None}
        return {**dict.fromkeys(missing), **found, **sights}

    async def _longest_ttl_ms(self, scan: _Scan, candidates: Collection[Candidate]) -> int | None:
        """An execution whose worker was deleted is decided by it alone."""
        is_needed = any(one.worker_id is None for one in candidates)
        return await self._sight.longest_ttl_ms(scan.fleet if is_needed else ())

    def _undecidable(self, scan: _Scan, candidates: Collection[Candidate]) -> set[int]:
        """Workers of which a missing queue would prove nothing now: both questions of ten minutes would be wasted."""
        policy = self._policy.stale
        if self._publishes().cover(policy.horizon_seconds):
            return set()
        held_since = later(scan.began_at, -policy.held_timeout_seconds)
        held = {one.worker_id for one in candidates if held_since is not None and one.updated <= held_since}
        return set(scan.spared) - held


def _doubted(process: ProcessView) -> stale.DoubtedProcess:
    return stale.DoubtedProcess(
        gone_before=process.gone_before,
        known_from=process.known_from,
        shared_from=process.look.shared_from,
        shared_until=process.look.shared_until,
    )
