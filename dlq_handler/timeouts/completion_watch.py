"""Record when the queue of completion events has no consumer, and publish ends that were lost meanwhile.

Attune's executor never reconnects to the broker. Without a connection its timeout monitor still ends executions, and
their completion events are lost: slots stay taken, workflows hang. The leader checks the queue every few seconds and
records the intervals without a consumer. When a consumer is back and the queue has been empty for the quiet time, it
publishes the ends that the monitor wrote within those intervals. Of ends at times that were not observed, it publishes
only those of executions that still hold a slot.

Promises: each end is published once, whatever replica leads and wherever one stops. Never: changes an execution.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.lease_sql import database_time, keep_progress, read_progress
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host import unpublished_sql
from dlq_handler.host.ends import ENDED_BY_MONITOR, EndWithoutEvent, MonitorEnd, UnconsumedInterval
from dlq_handler.host.names import COMPLETED_QUEUE
from dlq_handler.loop import every
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decide_unpublished import (
    LeaveEnd,
    PublishEnd,
    WaitToPublish,
    decide_unpublished,
)
from dlq_handler.timeouts.findings import ReconcileFinding
from dlq_handler.timeouts.leader_scan import (
    CHECK_SECONDS,
    MISSED_CHECKS,
    LeaderScan,
    QuietTime,
    ScanInterrupted,
)
from dlq_handler.timeouts.message_recorders import EndPublisher
from dlq_handler.timeouts.options import MonitorOptions


@dataclass(slots=True)
class _QueueState:
    """What one scan knows about the queue, and whether it left an end for a later scan."""

    quiet_seconds: float
    unacked: int | None
    is_complete: bool = True


class CompletionWatch:
    def __init__(
        self,
        scan: LeaderScan,
        options: MonitorOptions,
        ends: EndPublisher,
        queues: QueueCounter,
        api: ManagementApi,
        *,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._scan, self._options, self._ends = scan, options, ends
        self._queues, self._api, self._now = queues, api, now
        self._check_seconds = min(CHECK_SECONDS, options.quiet_seconds / 2)
        self._quiet = QuietTime(self._check_seconds)
        self._is_closed = False
        """No interval is open, as far as this replica knows: a check that finds a consumer need not write."""
        self._next_scan, self._next_slots = 0.0, 0.0
        # A shadow replica publishes nothing, so the others cannot continue where it ended.
        self._progress = "shadow unpublished ends" if ends.options.is_shadow else "unpublished ends"

    async def run(self, stop: asyncio.Event) -> None:
        self._scan.stop = stop
        await every(self._check_seconds, self.tick, stop, name="completion-watch")

    async def tick(self) -> None:
        if not self._scan.leadership.is_leader:
            self._is_closed = False
            return
        try:
            await self._check_queue()
            quiet_seconds = self._quiet.seconds
            if quiet_seconds is None or quiet_seconds < self._options.quiet_seconds:
                return
            if self._now() >= self._next_scan:
                self._next_scan = self._now() + self._options.quiet_seconds
                await self._publish_lost_ends(quiet_seconds)
        except ScanInterrupted:
            return
        except Contended as error:
            raise Unavailable("database", f"dlq-handler's tables are locked: {error}") from error

    async def _check_queue(self) -> None:
        began = self._now()
        counts = await self._queues.count_known(COMPLETED_QUEUE)
        self._quiet.note(counts, self._now())
        if counts is None or (counts.consumers > 0 and self._is_closed):
            return
        async with self._scan.database.transaction() as tx:
            await self._scan.leadership.fence(tx)
            if counts.consumers > 0:
                await decisions_sql.close_interval(tx)
            else:
                # The time before the check: an interval must not reach beyond what the check has shown. It is computed,
                # because to read it costs a transaction for each check, also of those that find a consumer.
                asked_at = await database_time(tx)
                asked_at -= timedelta(seconds=self._now() - began)
                longest_gap_seconds = MISSED_CHECKS * self._check_seconds
                await decisions_sql.extend_interval(
                    tx, asked_at=asked_at, longest_gap_seconds=longest_gap_seconds
                )
        self._is_closed = counts.consumers > 0

    async def _publish_lost_ends(self, quiet_seconds: float) -> None:
        async with self._scan.database.transaction() as tx:
            now = await database_time(tx)
            intervals = await decisions_sql.intervals_after(tx, await read_progress(tx, self._progress))
        queue = _QueueState(quiet_seconds=quiet_seconds, unacked=await self._count_unacked())
        for interval in intervals:
            await self._publish_ends_within(interval, queue)
            if queue.is_complete:
                await self._keep_progress(interval.last_observed_at)
        if queue.is_complete:
            await self._keep_progress(now)
        if self._now() >= self._next_slots:
            self._next_slots = self._now() + self._options.reconcile_interval_seconds
            await self._publish_held_tasks(queue)

    async def _count_unacked(self) -> int | None:
        try:
            return await self._api.unacknowledged(COMPLETED_QUEUE)
        except Unavailable:
            return None

    async def _keep_progress(self, until: datetime) -> None:
        async with self._scan.database.transaction() as tx:
            await self._scan.leadership.fence(tx)
            await keep_progress(tx, self._progress, until=until)

    async def _publish_ends_within(self, interval: UnconsumedInterval, queue: _QueueState) -> None:
        for status in sorted(ENDED_BY_MONITOR):
            read = partial(
                unpublished_sql.ends_within,
                interval=interval,
                status=status,
                limit=self._options.batch_size,
                is_shadow=self._ends.options.is_shadow,
            )
            async for ends in self._scan.pages(read, (interval.began_at, 0)):
                await self._publish(ends, ReconcileFinding.UNPUBLISHED_END, queue)

    async def _publish_held_tasks(self, queue: _QueueState) -> None:
        read = partial(
            unpublished_sql.tasks_with_slots,
            held_seconds=self._options.held_slot_seconds,
            limit=self._options.batch_size,
            is_shadow=self._ends.options.is_shadow,
        )
        async for ends in self._scan.pages(read, 0):
            await self._publish(ends, ReconcileFinding.HELD_SLOT, queue)

    async def _publish(
        self, ends: Sequence[MonitorEnd], finding: ReconcileFinding, queue: _QueueState
    ) -> None:
        publishable: list[EndWithoutEvent] = []
        for one in ends:
            decision = decide_unpublished(
                one,
                quiet_seconds=queue.quiet_seconds,
                wanted_quiet_seconds=self._options.quiet_seconds,
                unacked=queue.unacked,
            )
            match decision:
                case PublishEnd():
                    publishable.append(one.end)
                case WaitToPublish():
                    queue.is_complete = False
                case LeaveEnd():
                    pass
                case _:
                    assert_never(decision)
        await self._ends.publish(publishable, finding)
