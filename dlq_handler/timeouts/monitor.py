"""The timeout monitor: scan for executions that no dead letter reports, on the replica that leads.

A scan reads scheduled, running and canceling executions, oldest first, in batches, each row once. Two batches are in
progress at once: while the database writes one, the other is read and decided here. A scan ends early when another
replica leads, the brake is tripped, a server is unavailable or the process stops. The next one starts from the oldest
again.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from dlq_handler.broker.consumer import DrainTracker
from dlq_handler.broker.publish_times import PublishRecorder
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership, LeaseLost, worst_error
from dlq_handler.endings.ender import Ender
from dlq_handler.errors import Contended
from dlq_handler.host import executions_sql, stale_sql, workers_sql
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.stale_sql import Candidate
from dlq_handler.host.worker import by_heartbeat, is_unavailable
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts.case import (
    RUN_GRACE_SECONDS,
    Processes,
    ScanFacts,
    StaleLimits,
    WorkerQueues,
    later,
)
from dlq_handler.timeouts.decide import SCANNED
from dlq_handler.timeouts.decision import StaleRecord
from dlq_handler.timeouts.recorder import Suspect
from dlq_handler.workers.processes import WorkerProcesses
from dlq_handler.workers.queue_observer import WorkerQueueObserver
from dlq_handler.workers.worker_observation import WorkerObservation
from dlq_handler.workers.worker_process import ProcessView

log = structlog.get_logger()

LOOP = "timeout-monitor"
BATCHES_AT_ONCE = 2


@dataclass(slots=True, kw_only=True)
class _Scan:
    began_at: datetime
    """By the database's clock: rows that move later are left to the next scan."""
    available: Collection[int]
    """Workers that are not unavailable."""
    fleet: Sequence[int] = ()
    """All workers, those first whose queue most likely exists."""
    intake_undrained_seconds: float | None = None
    """None: the intake is drained, or there is none here."""
    processes: Processes = field(default_factory=dict)
    checks: dict[int, WorkerObservation] = field(default_factory=dict)
    without_queue: set[int] = field(default_factory=set)
    """Workers whose queue this scan has found missing. The broker is asked once: each question is an error in its log.
    It proves as much for a later batch, because all executions of the scan are older than the scan.
    """
    ended: int = 0
    left_out: int = 0
    """Executions that the brake had no room for."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Through the executions in one status. Batches are read one after the other, each behind the last."""

    scan: _Scan
    status: ExecutionStatus
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    behind: Candidate | None = None
    is_over: bool = False


class TimeoutMonitor:
    def __init__(
        self,
        database: Database,
        limits: StaleLimits,
        *,
        ender: Ender[Suspect, StaleRecord],
        leadership: Leadership,
        gate: Gate,
        queues: WorkerQueueObserver,
        publishes: PublishRecorder,
        metrics: Metrics,
        intake: DrainTracker | None = None,
        processes: WorkerProcesses | None = None,
    ) -> None:
        """`intake` None: this replica takes no dead letters, so there is nothing to wait for. `processes` None: the
        connections of workers say nothing about their processes.
        """
        self._database, self._limits, self._ender = database, limits, ender
        self._leadership, self._gate, self._queues = leadership, gate, queues
        self._publishes, self._metrics = publishes, metrics
        self._intake, self._processes = intake, processes
        self._began_at = float("-inf")
        self._is_waiting = False
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        leadership.wake_when_taken(self._wake)
        if intake is not None:
            intake.wake_when_drained(self._wake)

    async def run(self, stop: asyncio.Event) -> None:
        self._stop, self._began_at = stop, monotonic_seconds()
        await every(self._limits.monitor.interval_seconds, self.tick, stop, name=LOOP, wake=self._wake)

    async def tick(self) -> None:
        """One scan, if this replica leads."""
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
                scan.processes = await self._processes.observe(scan.available, checked_at=scan.began_at)
            for status in SCANNED:
                await self._scan(scan, status)
        except (LeaseLost, Contended) as error:
            log.info("scan.ended_early", error=str(error))
        seconds = monotonic_seconds() - started
        self._metrics.scan_seconds.observe(seconds)
        if scan.ended or scan.left_out:
            log.info("scan.finished", ended=scan.ended, left_out=scan.left_out, seconds=round(seconds, 3))

    def _undrained_seconds(self) -> float | None:
        """Without the time before this monitor began: the intake waits for the servers as the monitor does."""
        seconds = self._intake.undrained_seconds if self._intake is not None else None
        return None if seconds is None else min(seconds, monotonic_seconds() - self._began_at)

    def _must_wait_for_intake(self, undrained_seconds: float | None) -> bool:
        """For one deadline at most: the monitor must not stop with the intake that it backs."""
        deadline_seconds = self._limits.deadline_seconds
        must_wait = undrained_seconds is not None and undrained_seconds < deadline_seconds
        if must_wait and not self._is_waiting:
            log.info("scan.delayed", until="the intake is drained", at_most_seconds=deadline_seconds)
        self._is_waiting = must_wait
        return must_wait

    async def _begin(self, undrained_seconds: float | None) -> _Scan:
        async with self._database.transaction() as tx:
            now = (await executions_sql.read_executions(tx, ())).now
            workers = await workers_sql.read_workers(tx)
        availability, watched_seconds = self._limits.availability, self._gate.watched_seconds
        available = [
            worker.id
            for worker in workers.values()
            if not is_unavailable(worker, link_age_seconds=watched_seconds, policy=availability)
        ]
        return _Scan(
            began_at=now,
            intake_undrained_seconds=undrained_seconds,
            available=available,
            fleet=by_heartbeat(workers.values()),
        )

    async def _scan(self, scan: _Scan, status: ExecutionStatus) -> None:
        walk = _Walk(scan=scan, status=status)
        # Not a task group, which cancels all at the first error: a batch that is being committed is finished.
        results = await asyncio.gather(
            *[self._take_batches(walk) for _ in range(BATCHES_AT_ONCE)], return_exceptions=True
        )
        errors = [error for error in results if error is not None]
        if errors:
            raise worst_error(errors, loop=LOOP)

    async def _take_batches(self, walk: _Walk) -> None:
        try:
            while await self._take_batch(walk):
                pass
        finally:
            walk.is_over = True

    async def _take_batch(self, walk: _Walk) -> bool:
        """False when there is none left to take."""
        async with walk.turn:
            batch = await self._next_batch(walk)
            if not batch:
                return False
            workers = {one.candidate.worker_id for one in batch} - {None}
            if not workers <= walk.scan.checks.keys():
                # Alone with its checks: of two batches that check one worker, one would wait for the other's commit.
                await self._commit(batch, walk)
                return True
        await self._commit(batch, walk)
        return True

    async def _next_batch(self, walk: _Walk) -> Sequence[Suspect]:
        if walk.is_over or self._stop.is_set():
            return ()
        scan = walk.scan
        candidates = await self._find(scan, walk.status, walk.behind)
        walk.is_over = len(candidates) < self._limits.monitor.batch_size
        if not candidates:
            return ()
        walk.behind = candidates[-1]
        # Only a scheduled execution has a message that may be in a queue.
        is_scheduled = walk.status is ExecutionStatus.SCHEDULED
        facts = ScanFacts(
            queues=await self._observe_queues(scan, candidates) if is_scheduled else {},
            checks=scan.checks,
            processes=scan.processes,
            intake_undrained_seconds=scan.intake_undrained_seconds,
            longest_ttl_ms=await self._longest_ttl_ms(scan, candidates) if is_scheduled else None,
        )
        return [Suspect(candidate, facts) for candidate in candidates]

    async def _commit(self, batch: Sequence[Suspect], walk: _Walk) -> None:
        committed = await self._ender.commit(batch)
        walk.scan.ended += sum(one.outcome.is_end for one in committed.records)
        walk.scan.left_out += committed.left_out
        if committed.left_out:
            # All the others would be left out too, batch after batch.
            walk.is_over = True

    async def _find(self, scan: _Scan, status: ExecutionStatus, behind: Candidate | None) -> list[Candidate]:
        async with self._database.transaction() as tx:
            return await stale_sql.find_candidates(
                tx,
                status,
                not_after=scan.began_at - timedelta(seconds=self._least_age_seconds(status)),
                behind=behind,
                limit=self._limits.monitor.batch_size,
                available=scan.available,
                processes={one: _uncertain(process) for one, process in scan.processes.items()},
                run_limit_seconds=self._limits.run_limit_seconds,
                grace_seconds=RUN_GRACE_SECONDS,
            )

    def _least_age_seconds(self, status: ExecutionStatus) -> float:
        """No execution in this status can be stale before this age."""
        return {
            ExecutionStatus.SCHEDULED: self._limits.deadline_seconds,
            ExecutionStatus.CANCELING: self._limits.monitor.canceling_timeout_seconds,
        }.get(status, 0.0)

    async def _observe_queues(self, scan: _Scan, candidates: Collection[Candidate]) -> WorkerQueues:
        worker_ids = {one.worker_id for one in candidates if one.worker_id is not None}
        missing, rest = worker_ids & scan.without_queue, worker_ids - scan.without_queue
        undecidable = self._undecidable(scan, candidates) & rest
        known = await self._queues.observe_quietly(undecidable) if undecidable else {}
        found = {one: queue for one, queue in known.items() if queue is not None}
        observed = await self._queues.observe(rest - undecidable) if rest - undecidable else {}
        scan.without_queue |= {one for one, queue in observed.items() if queue is None}
        return {**dict.fromkeys(missing), **found, **observed}

    async def _longest_ttl_ms(self, scan: _Scan, candidates: Collection[Candidate]) -> int | None:
        """An execution whose worker was deleted is decided by it alone."""
        is_needed = any(one.worker_id is None for one in candidates)
        return await self._queues.longest_ttl_ms(scan.fleet if is_needed else ())

    def _undecidable(self, scan: _Scan, candidates: Collection[Candidate]) -> set[int]:
        """Workers whose missing queue would prove nothing now: both questions of ten minutes would be wasted."""
        if self._publishes.view().cover(self._limits.deadline_seconds):
            return set()
        held_since = later(scan.began_at, -self._limits.monitor.held_timeout_seconds)
        held = {one.worker_id for one in candidates if held_since is not None and one.updated <= held_since}
        return set(scan.available) - held


def _uncertain(process: ProcessView) -> stale_sql.UncertainProcess:
    return stale_sql.UncertainProcess(
        former_until=process.former_until,
        known_from=process.known_from,
        shared_from=process.known.shared_from,
        shared_until=process.known.shared_until,
    )
