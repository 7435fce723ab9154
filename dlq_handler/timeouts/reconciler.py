"""The slow look of the leader: tell of ends that nobody heard of, notice executions that came back after we ended them.

Promises: each end is told once, by whichever replica leads, however often its row is touched afterwards; only a slot
that is still taken a look-back later may be told of again. A host without admission tables has no slots to look for,
and that is no error. Never: changes an execution, so the brake has no say here. In shadow it records what it would have
announced.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import structlog

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.progress_sql import keep_progress, read_progress
from dlq_handler.database.server_sql import database_time
from dlq_handler.database.transaction import Transaction
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host import reconcile_sql, workflow_tasks_sql
from dlq_handler.host.ends import EndOfOurs, UnheardEnd
from dlq_handler.host.execution import TERMINAL, ExecutionStatus
from dlq_handler.host.messages import Destination
from dlq_handler.host.unscheduled_sql import BEGINNING, Place
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.end_publisher import EndPublisher, EndPublisherPolicy
from dlq_handler.timeouts.reconcile import (
    UNDER_WAY,
    Finding,
    is_brought_back,
    is_long_past,
    resurrected_record,
)

log = structlog.get_logger()

Found = TypeVar("Found")

# A row carries the time its transaction began, and shows when that has ended: so far back we look once more.
OVERLAP = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilePolicy:
    replica: str
    destination: Destination
    interval_seconds: float
    page_size: int
    silent_end_seconds: float
    """Whoever ends an execution and means to tell of it gets this much time."""
    held_slot_seconds: float
    """A slot is freed by the notice of an end. Before this much time that notice may be on its way."""
    look_back_seconds: float
    """How far back silent ends are looked for, when nobody has looked yet, and how long a slot may take to be freed."""
    is_shadow: bool = False


class Reconciler:
    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        policy: ReconcilePolicy,
        *,
        gate: Gate,
        completed_queue: Callable[[], Awaitable[QueueCounts | None]],
        metrics: Metrics,
    ) -> None:
        """`completed_queue` looks at the queue of whoever frees slots; None: there is none."""
        self._database, self._leadership, self._policy = database, leadership, policy
        self._gate, self._completed_queue, self._metrics = gate, completed_queue, metrics
        self._ends = EndPublisher(
            database,
            leadership,
            EndPublisherPolicy(
                replica=policy.replica,
                destination=policy.destination,
                is_shadow=policy.is_shadow,
            ),
            metrics=metrics,
        )
        self._stop = asyncio.Event()
        self._looked_until: datetime | None = None
        """The end of the last complete look of any leader."""

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        await every(self._policy.interval_seconds, self.tick, stop, name="reconciler")

    async def tick(self) -> None:
        if not self._leadership.is_leader:
            return
        try:
            await self._look()
        except Contended as error:
            raise Unavailable("database", f"our tables are locked: {error}") from error

    async def _look(self) -> None:
        asked_at = monotonic_seconds()
        async with self._database.transaction() as tx:
            now = await database_time(tx)
            self._looked_until = await read_progress(tx, self._progress)
        self._gate.see_clock(now, asked_at=asked_at, answered_at=monotonic_seconds())
        # A shadow ended nothing that could come back.
        if not self._policy.is_shadow and not await self._notice_resurrections(now):
            return
        if not await self._tell_of_silent_ends(now):
            return
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            await keep_progress(tx, self._progress, until=now)
        # Last, because it asks the broker too: one that is away must not keep the others from being told.
        await self._tell_of_held_slots(now)

    def _since(self, now: datetime) -> datetime:
        """From where rows that moved are looked at."""
        since = now - timedelta(seconds=self._policy.look_back_seconds)
        if self._looked_until is None:
            return since
        # The last look left out silent ends that were too young then.
        overlap = OVERLAP + timedelta(seconds=self._policy.silent_end_seconds)
        return max(since, self._looked_until - overlap)

    @property
    def _progress(self) -> str:
        """A shadow replica announces nothing, so the others cannot go on where it ended."""
        return "shadow reconciler" if self._policy.is_shadow else "reconciler"

    async def _walk(
        self,
        since: datetime,
        ask: Callable[[Transaction, Place], Awaitable[reconcile_sql.Page[Found]]],
        tell: Callable[[Sequence[Found]], Awaitable[object]],
    ) -> bool:
        """Page by page; False when that was cut short."""
        place: Place | None = (since, 0)
        while place is not None:
            if not self._may_go_on():
                return False
            async with self._database.transaction() as tx:
                page = await ask(tx, place)
            place = page.last
            await tell(page.ends)
        return True

    def _may_go_on(self) -> bool:
        """To be asked before each page: there may be thousands of them."""
        self._gate.check()
        return self._leadership.is_leader and not self._stop.is_set()

    async def _notice_resurrections(self, now: datetime) -> bool:
        async def ask(
            status: ExecutionStatus, tx: Transaction, place: Place
        ) -> reconcile_sql.Page[EndOfOurs]:
            return await reconcile_sql.ends_of_ours(
                tx, status, after=place, until=now, limit=self._policy.page_size
            )

        async def record(ends: Sequence[EndOfOurs]) -> None:
            await self._record_resurrections([end for end in ends if is_brought_back(end)], now)

        for status in (*sorted(UNDER_WAY), *sorted(TERMINAL)):
            # All that run now, which are few; of those that have ended, what moved since the last look.
            since = BEGINNING[0] if status in UNDER_WAY else self._since(now)
            if not await self._walk(since, partial(ask, status), record):
                return False
        return True

    async def _record_resurrections(self, ends: Sequence[EndOfOurs], now: datetime) -> None:
        if not ends:
            return
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            records = [resurrected_record(end, now=now, replica=self._policy.replica) for end in ends]
            written = await decisions_sql.record(tx, records)
        self._metrics.reconciled.labels(Finding.REVERTED_BY_WORKER).inc(len(written))
        for record in records:
            if record.execution_id in written:
                log.warning(
                    "execution.reverted_by_worker",
                    execution_id=record.execution_id,
                    worker_id=record.worker_id,
                    status=record.original_status,
                    explanation=record.explanation,
                )

    async def _tell_of_silent_ends(self, now: datetime) -> bool:
        long_ago = now - timedelta(seconds=self._policy.look_back_seconds)

        async def ask(tx: Transaction, place: Place) -> reconcile_sql.Page[UnheardEnd]:
            return await reconcile_sql.silent_ends(
                tx,
                after=place,
                until=now - timedelta(seconds=self._policy.silent_end_seconds),
                limit=self._policy.page_size,
                is_shadow=self._policy.is_shadow,
            )

        async def announce(ends: Sequence[UnheardEnd]) -> None:
            recent = [end for end in ends if not is_long_past(end, since=long_ago)]
            await self._ends.publish(await self._without_answered(recent), Finding.SILENT_END, now)

        return await self._walk(self._since(now), ask, announce)

    async def _without_answered(self, ends: Sequence[UnheardEnd]) -> Sequence[UnheardEnd]:
        """Without workflow tasks that the host has retried: it knows of their end, and would retry once more."""
        tasks = [end.execution.id for end in ends if end.execution.is_workflow_task]
        retried = await workflow_tasks_sql.already_retried(self._database, tasks) if tasks else frozenset()
        return [end for end in ends if end.execution.id not in retried]

    async def _tell_of_held_slots(self, now: datetime) -> None:
        queue = await self._completed_queue()
        # With notices waiting, or nobody to read them, a slot that is still taken means nothing.
        if queue is None or queue.consumers == 0 or queue.ready > 0:
            return
        is_more = True
        while is_more and self._may_go_on():
            async with self._database.transaction() as tx:
                # What was told is not found again, so that the next page is the first one once more.
                ends = await reconcile_sql.held_slots(
                    tx,
                    held_seconds=self._policy.held_slot_seconds,
                    again_after_seconds=self._policy.look_back_seconds,
                    limit=self._policy.page_size,
                    is_shadow=self._policy.is_shadow,
                )
            told = await self._ends.publish(ends, Finding.HELD_SLOT, now)
            is_more = told > 0 and len(ends) == self._policy.page_size
