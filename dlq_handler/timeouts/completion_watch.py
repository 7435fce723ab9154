"""Record when the queue of completion events has no consumer, and publish ends that were lost meanwhile.

Attune's executor never reconnects to the broker. Without a connection its timeout monitor goes on ending executions,
and their completion events are lost: slots stay taken, workflows hang. The leader looks at the queue every few seconds
and keeps the intervals without a consumer. When a consumer is back and the queue has been empty for the quiet time, it
publishes the ends that the monitor wrote within those intervals. Of ends at times that were not observed, it publishes
only those of executions that still hold a slot.

Promises: each end is published once, whatever replica leads and wherever one dies. Never: changes an execution.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.progress_sql import keep_progress, read_progress
from dlq_handler.database.server_sql import database_time
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host import unpublished_sql
from dlq_handler.host.ends import ENDED_BY_MONITOR, MonitorEnd, UnconsumedInterval
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.unscheduled_sql import Place
from dlq_handler.loop import every
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts import unconsumed_sql
from dlq_handler.timeouts.end_publisher import EndPublisher
from dlq_handler.timeouts.quiet_spell import LONGEST_GAP_LOOKS, LOOK_SECONDS, QuietSpell
from dlq_handler.timeouts.reconcile import Finding
from dlq_handler.timeouts.unpublished import (
    PublishEnd,
    WaitToPublish,
    decide_end,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionWatchPolicy:
    quiet_seconds: float
    """So long the queue must have been empty, with a consumer: an event of the host's own is handled by then."""
    held_slot_seconds: float
    slot_interval_seconds: float
    """Interval between two scans of slots."""
    page_size: int
    is_shadow: bool = False

    @property
    def look_seconds(self) -> float:
        return min(LOOK_SECONDS, self.quiet_seconds / 2)


@dataclass(slots=True)
class _Scan:
    """What one scan knows of the queue, and whether it left something for a later one."""

    now: datetime
    quiet_seconds: float
    unacked: int | None
    is_settled: bool = True


class CompletionWatch:
    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        policy: CompletionWatchPolicy,
        *,
        gate: Gate,
        ends: EndPublisher,
        completed_queue: Callable[[], Awaitable[QueueCounts | None]],
        unacked: Callable[[], Awaitable[int | None]],
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        """`completed_queue` looks at the queue of completion events; None: unknown, or there is none. `unacked` counts
        the messages that its consumers hold; it may be away.
        """
        self._database, self._leadership, self._policy = database, leadership, policy
        self._gate, self._ends, self._now = gate, ends, now
        self._completed_queue, self._unacked = completed_queue, unacked
        self._quiet = QuietSpell(policy.look_seconds)
        self._is_closed = False
        """No interval is open, as far as this replica knows: a look that finds a consumer need not write."""
        self._next_scan, self._next_slots = 0.0, 0.0
        self._stop = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        await every(self._policy.look_seconds, self.tick, stop, name="completion-watch")

    async def tick(self) -> None:
        if not self._leadership.is_leader:
            self._is_closed = False
            return
        try:
            await self._look()
            quiet_seconds = self._quiet.seconds
            if quiet_seconds is None or quiet_seconds < self._policy.quiet_seconds:
                return
            if self._now() >= self._next_scan:
                self._next_scan = self._now() + self._policy.quiet_seconds
                await self._scan(quiet_seconds)
        except Contended as error:
            raise Unavailable("database", f"dlq-handler's tables are locked: {error}") from error

    async def _look(self) -> None:
        # The clock before the look: an interval must not reach beyond what the look has shown.
        async with self._database.transaction() as tx:
            asked_at = await database_time(tx)
        counts = await self._completed_queue()
        self._quiet.looked(counts, self._now())
        if counts is None or (counts.consumers > 0 and self._is_closed):
            return
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            if counts.consumers > 0:
                await unconsumed_sql.note_consumer(tx)
            else:
                longest_gap_seconds = LONGEST_GAP_LOOKS * self._policy.look_seconds
                await unconsumed_sql.note_no_consumer(
                    tx, asked_at=asked_at, longest_gap_seconds=longest_gap_seconds
                )
        self._is_closed = counts.consumers > 0

    @property
    def _progress(self) -> str:
        """A shadow replica publishes nothing, so the others cannot go on where it ended."""
        return "shadow unpublished ends" if self._policy.is_shadow else "unpublished ends"

    async def _scan(self, quiet_seconds: float) -> None:
        async with self._database.transaction() as tx:
            now = await database_time(tx)
            intervals = await unconsumed_sql.intervals_after(tx, await read_progress(tx, self._progress))
        scan = _Scan(now=now, quiet_seconds=quiet_seconds, unacked=await self._count_unacked())
        for interval in intervals:
            if not await self._walk(interval, scan):
                return
            if scan.is_settled:
                await self._keep_progress(interval.last_observed_at)
        if scan.is_settled:
            await self._keep_progress(now)
        if self._now() >= self._next_slots:
            self._next_slots = self._now() + self._policy.slot_interval_seconds
            await self._publish_held_tasks(scan)

    async def _count_unacked(self) -> int | None:
        try:
            return await self._unacked()
        except Unavailable:
            return None

    async def _keep_progress(self, until: datetime) -> None:
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            await keep_progress(tx, self._progress, until=until)

    def _may_go_on(self) -> bool:
        """To be asked before each page: there may be thousands of them."""
        self._gate.check()
        return self._leadership.is_leader and not self._stop.is_set()

    async def _walk(self, interval: UnconsumedInterval, scan: _Scan) -> bool:
        """False when it was cut short."""
        for status in sorted(ENDED_BY_MONITOR):
            if not await self._walk_status(interval, status, scan):
                return False
        return True

    async def _walk_status(self, interval: UnconsumedInterval, status: ExecutionStatus, scan: _Scan) -> bool:
        place: Place | None = (interval.began_at, 0)
        while place is not None:
            if not self._may_go_on():
                return False
            async with self._database.transaction() as tx:
                page = await unpublished_sql.ends_within(
                    tx,
                    interval,
                    status,
                    after=place,
                    limit=self._policy.page_size,
                    is_shadow=self._policy.is_shadow,
                )
            place = page.last
            await self._publish(page.ends, Finding.UNPUBLISHED_END, scan)
        return True

    async def _publish_held_tasks(self, scan: _Scan) -> None:
        after_id: int | None = 0
        while after_id is not None and self._may_go_on():
            async with self._database.transaction() as tx:
                ends, after_id = await unpublished_sql.tasks_with_slots(
                    tx,
                    held_seconds=self._policy.held_slot_seconds,
                    after_id=after_id,
                    limit=self._policy.page_size,
                    is_shadow=self._policy.is_shadow,
                )
            await self._publish(ends, Finding.HELD_SLOT, scan)

    async def _publish(self, ends: Sequence[MonitorEnd], finding: Finding, scan: _Scan) -> None:
        wanted = []
        for one in ends:
            decision = decide_end(
                one,
                quiet_seconds=scan.quiet_seconds,
                wanted_quiet_seconds=self._policy.quiet_seconds,
                unacked=scan.unacked,
            )
            if isinstance(decision, PublishEnd):
                wanted.append(one.end)
            elif isinstance(decision, WaitToPublish):
                scan.is_settled = False
        await self._ends.publish(wanted, finding, scan.now)
