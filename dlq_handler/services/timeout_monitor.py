"""The timeout monitor: sweep for executions that no letter will ever tell of, on the one replica that leads.

A sweep goes through scheduled, running and canceling executions, oldest first, page by page, each row once; what
becomes of a page is `judge_stale`'s business. Two pages are in hand at once: while the database writes one, the other
is read and judged here. A sweep ends early when another replica leads, the brake holds, a server is away or the process
is told to stop: the next one begins from the oldest again, and nothing is lost by that.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from dlq_handler.broker.intake_drain import IntakeDrain
from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.execution import ExecutionStatus
from dlq_handler.domain.judge_stale import SWEPT
from dlq_handler.domain.stale_case import StalePolicy
from dlq_handler.domain.worker import is_unavailable
from dlq_handler.domain.worker_look import WorkerLook
from dlq_handler.errors import Contended
from dlq_handler.services.every import every
from dlq_handler.services.gate import Gate
from dlq_handler.services.judge_stale import Page, StaleJudge
from dlq_handler.services.leadership import Leadership, LeaseLost
from dlq_handler.services.observer import Observer
from dlq_handler.services.outbox_relay import OutboxRelay
from dlq_handler.services.stale_cases import Sight, Sights
from dlq_handler.services.worst_error import worst_error
from dlq_handler.store import dead_letters, stale
from dlq_handler.store.engine import Database
from dlq_handler.store.stale import Candidate

log = structlog.get_logger()

LOOP = "timeout-monitor"
PAGES_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorPolicy:
    interval_seconds: float
    page_size: int
    stale: StalePolicy


@dataclass(slots=True, kw_only=True)
class _Sweep:
    began_at: datetime
    """By the database's clock: rows that move later are left to the next sweep."""
    spared: Collection[int]
    """Workers that are not unavailable."""
    intake_undrained_seconds: float | None = None
    """None: the intake is drained, or there is none here."""
    looks: dict[int, WorkerLook] = field(default_factory=dict)
    ended: int = 0
    left_out: int = 0
    """Those that the brake had no room for."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Through the executions in one status. Pages are found one after the other, each behind the last."""

    sweep: _Sweep
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
        judge: StaleJudge,
        leadership: Leadership,
        gate: Gate,
        sight: Sight,
        relay: OutboxRelay | None,
        observer: Observer,
        intake: IntakeDrain | None = None,
    ) -> None:
        """Without a relay completion events are written unleased, and a replica that has one publishes them.

        `intake` None: this replica takes no dead letters, so there is nothing to wait for.
        """
        self._database, self._policy, self._judge = database, policy, judge
        self._leadership, self._gate, self._sight = leadership, gate, sight
        self._relay, self._observer, self._intake = relay, observer, intake
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
        """One sweep, if we lead."""
        if not self._leadership.is_leader:
            return
        self._gate.check()
        undrained_seconds = self._undrained_seconds()
        if self._must_wait_for_intake(undrained_seconds):
            return
        started = monotonic_seconds()
        sweep = await self._begin(undrained_seconds)
        try:
            for status in SWEPT:
                await self._sweep(sweep, status)
        except LeaseLost as error:
            log.info("sweep.cut_short", error=error.what)
        except Contended as error:
            log.info("sweep.cut_short", error=str(error))
        seconds = monotonic_seconds() - started
        self._observer.sweep_finished(seconds)
        if sweep.ended or sweep.left_out:
            log.info("sweep.finished", ended=sweep.ended, left_out=sweep.left_out, seconds=round(seconds, 3))

    def _undrained_seconds(self) -> float | None:
        """Not counting the time before this monitor began: the intake waits for the servers as the monitor does."""
        seconds = self._intake.undrained_seconds if self._intake is not None else None
        return None if seconds is None else min(seconds, monotonic_seconds() - self._began_at)

    def _must_wait_for_intake(self, undrained_seconds: float | None) -> bool:
        """For one deadline at most: the backstop must not stop with what it backs."""
        deadline_seconds = self._policy.stale.horizon_seconds
        must_wait = undrained_seconds is not None and undrained_seconds < deadline_seconds
        if must_wait and not self._is_waiting:
            log.info("sweep.put_off", until="the intake is drained", at_most_seconds=deadline_seconds)
        self._is_waiting = must_wait
        return must_wait

    async def _begin(self, undrained_seconds: float | None) -> _Sweep:
        async with self._database.transaction() as tx:
            now = (await dead_letters.read_executions(tx, ())).now
            workers = await dead_letters.read_workers(tx)
        availability, watched_seconds = self._policy.stale.availability, self._gate.watched_seconds
        return _Sweep(
            began_at=now,
            intake_undrained_seconds=undrained_seconds,
            spared=[
                worker.id
                for worker in workers.values()
                if not is_unavailable(worker, link_age_seconds=watched_seconds, policy=availability)
            ],
        )

    async def _sweep(self, sweep: _Sweep, status: ExecutionStatus) -> None:
        walk = _Walk(sweep=sweep, status=status)
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
            if not page.worker_ids <= walk.sweep.looks.keys():
                # Alone with its looks: of two pages with a look at one worker, one would wait for the other's commit.
                await self._commit(page, walk)
                return True
        await self._commit(page, walk)
        return True

    async def _next_page(self, walk: _Walk) -> Page | None:
        if walk.is_over or self._stop.is_set():
            return None
        candidates = await self._find(walk.sweep, walk.status, walk.behind)
        walk.is_over = len(candidates) < self._policy.page_size
        if not candidates:
            return None
        walk.behind = candidates[-1]
        return Page(
            candidates=candidates,
            sights=await self._ask_broker(walk.status, candidates),
            looks=walk.sweep.looks,
            intake_undrained_seconds=walk.sweep.intake_undrained_seconds,
            longest_ttl_ms=await self._sight.longest_ttl_ms()
            if walk.status is ExecutionStatus.SCHEDULED
            else None,
        )

    async def _commit(self, page: Page, walk: _Walk) -> None:
        committed = await self._judge.commit(page)
        if self._relay is not None:
            self._relay.offer(committed.notices, leased_at=committed.leased_at)
        walk.sweep.ended += committed.ended
        walk.sweep.left_out += committed.left_out
        if committed.left_out:
            # All the others would be left out too, page after page.
            walk.is_over = True
        if committed.too_slow is not None:
            raise committed.too_slow

    async def _find(
        self, sweep: _Sweep, status: ExecutionStatus, behind: Candidate | None
    ) -> list[Candidate]:
        async with self._database.transaction() as tx:
            return await stale.page(
                tx,
                status,
                not_after=sweep.began_at - timedelta(seconds=self._least_age_seconds(status)),
                behind=behind,
                limit=self._policy.page_size,
                spared=sweep.spared,
            )

    def _least_age_seconds(self, status: ExecutionStatus) -> float:
        """No execution in this status can be stale before this age."""
        policy = self._policy.stale
        return {
            ExecutionStatus.SCHEDULED: policy.horizon_seconds,
            ExecutionStatus.CANCELING: policy.canceling_timeout_seconds,
        }.get(status, 0.0)

    async def _ask_broker(self, status: ExecutionStatus, candidates: Collection[Candidate]) -> Sights:
        """Only a scheduled one has a message that may be in a queue."""
        if status is not ExecutionStatus.SCHEDULED:
            return {}
        worker_ids = {one.worker_id for one in candidates if one.worker_id is not None}
        return await self._sight.look(worker_ids) if worker_ids else {}
