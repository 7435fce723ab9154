"""Publish completion events that are missing, and record executions that came back after dlq-handler ended them.

Runs on the leader, every few minutes. Promises: each end is published once, whatever replica leads and however often
its row changes; only a slot that is still held after `lookback_seconds` is published again. Never: changes an
execution, so the brake does not apply.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import structlog

from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import database_time, keep_progress, read_progress
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host import executions_sql, reconcile_sql
from dlq_handler.host.ends import EndWithoutEvent, OwnEnd
from dlq_handler.host.execution import BEGINNING, TERMINAL
from dlq_handler.host.names import COMPLETED_QUEUE
from dlq_handler.host.reconcile_sql import count_leaked_slots
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decision import REVERTIBLE
from dlq_handler.timeouts.findings import (
    UNDER_WAY,
    ReconcileFinding,
    is_long_past,
    is_reverted,
    reverted_record,
)
from dlq_handler.timeouts.leader_scan import LeaderScan, ScanInterrupted
from dlq_handler.timeouts.message_recorders import EndPublisher
from dlq_handler.timeouts.options import MonitorOptions

log = structlog.get_logger()

_SLOT_WATCH_SECONDS = 30.0

# A row carries the time its transaction began, and is visible when that has ended: this far back it is read again.
OVERLAP = timedelta(minutes=10)


class Reconciler:
    def __init__(
        self,
        scan: LeaderScan,
        options: MonitorOptions,
        ends: EndPublisher,
        queues: QueueCounter,
        metrics: Metrics,
        *,
        lookback_seconds: float,
    ) -> None:
        """`lookback_seconds`: age of the oldest end that the first scan finds, and the time before the end of an
        execution that still holds its slot is published again.
        """
        self._scan, self._options, self._ends = scan, options, ends
        self._queues, self._metrics = queues, metrics
        self._lookback = timedelta(seconds=lookback_seconds)
        # A shadow replica publishes nothing, so the others cannot continue where it ended.
        self._progress = "shadow reconciler" if ends.options.is_shadow else "reconciler"

    async def run(self, stop: asyncio.Event) -> None:
        self._scan.stop = stop
        await every(self._options.reconcile_interval_seconds, self.tick, stop, name="reconciler")

    async def tick(self) -> None:
        if not self._scan.leadership.is_leader:
            return
        try:
            await self._reconcile()
        except ScanInterrupted:
            return
        except Contended as error:
            raise Unavailable("database", f"dlq-handler's tables are locked: {error}") from error

    async def _reconcile(self) -> None:
        asked_at = monotonic_seconds()
        async with self._scan.database.transaction() as tx:
            now = await database_time(tx)
            scanned_until = await read_progress(tx, self._progress)
        self._scan.gate.see_clock(now, asked_at=asked_at, answered_at=monotonic_seconds())
        since = self._since(now, scanned_until)
        # A shadow replica ended nothing that could come back.
        if not self._ends.options.is_shadow:
            await self._record_reverted(since, now)
        await self._publish_missing_events(since, now)
        async with self._scan.database.transaction() as tx:
            await self._scan.leadership.fence(tx)
            await keep_progress(tx, self._progress, until=now)
        # Last, because it asks the broker: without the broker the other ends are published all the same.
        await self._publish_held_slots()

    def _since(self, now: datetime, scanned_until: datetime | None) -> datetime:
        """From which `updated` on rows are read."""
        since = now - self._lookback
        if scanned_until is None:
            return since
        # The last scan left out ends that were too young then.
        overlap = OVERLAP + timedelta(seconds=self._options.missing_event_seconds)
        return max(since, scanned_until - overlap)

    async def _record_reverted(self, since: datetime, now: datetime) -> None:
        for status in (*sorted(UNDER_WAY), *sorted(TERMINAL)):
            # All that run now, which are few; of those that have ended, what moved since the last scan.
            start = BEGINNING if status in UNDER_WAY else (since, 0)
            read = partial(
                reconcile_sql.own_ends,
                status=status,
                until=now,
                limit=self._options.batch_size,
                outcomes=REVERTIBLE,
            )
            async for ends in self._scan.pages(read, start):
                await self._record([end for end in ends if is_reverted(end)], now)

    async def _record(self, ends: Sequence[OwnEnd], now: datetime) -> None:
        if not ends:
            return
        records = [reverted_record(end, options=self._ends.options, now=now) for end in ends]
        async with self._scan.database.transaction() as tx:
            await self._scan.leadership.fence(tx)
            written = await decisions_sql.record(tx, records)
        self._metrics.reconciled.labels(ReconcileFinding.REVERTED_BY_WORKER).inc(len(written))
        for record in records:
            if record.execution_id in written:
                log.warning(
                    "execution.reverted_by_worker",
                    execution_id=record.execution_id,
                    worker_id=record.worker_id,
                    status=record.original_status,
                    explanation=record.explanation,
                )

    async def _publish_missing_events(self, since: datetime, now: datetime) -> None:
        read = partial(
            reconcile_sql.ends_without_event,
            until=now - timedelta(seconds=self._options.missing_event_seconds),
            limit=self._options.batch_size,
            is_shadow=self._ends.options.is_shadow,
        )
        async for ends in self._scan.pages(read, (since, 0)):
            recent = [end for end in ends if not is_long_past(end, since=now - self._lookback)]
            await self._ends.publish(await self._without_retried(recent), ReconcileFinding.MISSING_EVENT)

    async def _without_retried(self, ends: Sequence[EndWithoutEvent]) -> Sequence[EndWithoutEvent]:
        """Without workflow tasks that the host has retried: it knows their end, and an event makes a second retry."""
        tasks = [end.execution.id for end in ends if end.execution.is_workflow_task]
        retried = await executions_sql.already_retried(self._scan.database, tasks) if tasks else frozenset()
        return [end for end in ends if end.execution.id not in retried]

    async def _publish_held_slots(self) -> None:
        queue = await self._queues.count_known(COMPLETED_QUEUE)
        # While events wait, or no consumer takes them, a slot that is still held proves nothing.
        if queue is None or queue.consumers == 0 or queue.ready > 0:
            return
        is_more = True
        while is_more:
            self._scan.check()
            async with self._scan.database.transaction() as tx:
                # An end that was published is not found again, so the next page is the first one again.
                ends = await reconcile_sql.held_slots(
                    tx,
                    held_seconds=self._options.held_slot_seconds,
                    again_after_seconds=self._lookback.total_seconds(),
                    limit=self._options.batch_size,
                    is_shadow=self._ends.options.is_shadow,
                )
            published = await self._ends.publish(ends, ReconcileFinding.HELD_SLOT)
            is_more = published > 0 and len(ends) == self._options.batch_size


class SlotWatch:
    """Count the slots that ended executions still hold, on every replica, for the metric. Read only.

    The reconciler, on the leader, publishes the ends of these executions; then the host frees the slots.
    """

    def __init__(self, database: Database, options: MonitorOptions, metrics: Metrics) -> None:
        self._database, self._options, self._metrics = database, options, metrics

    async def run(self, stop: asyncio.Event) -> None:
        await every(_SLOT_WATCH_SECONDS, self.tick, stop, name="slot-watch")

    async def tick(self) -> None:
        try:
            count = await count_leaked_slots(self._database, held_seconds=self._options.held_slot_seconds)
        except (Unavailable, Contended):
            self._metrics.slots_leaked.set(None)
            raise
        self._metrics.slots_leaked.set(count)
