"""Find executions that were requested and are not scheduled, and publish their requests again.

Promises: the requests of one execution have growing pauses and a limit, whatever replica leads and however often its
row changes. Only the leader publishes them, and only while the scheduler's queue was empty, with a consumer, at every
check of the quiet time. It publishes one batch, then waits for the quiet time again, so that a scheduler that was
unavailable for long is not flooded. Never: ends an execution, unless `fail_unscheduled` is set.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.clock import monotonic_seconds
from dlq_handler.endings.ender import Ender
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.host.execution import BEGINNING, ExecutionStatus, Unscheduled
from dlq_handler.host.names import REQUESTS_QUEUE
from dlq_handler.host.unscheduled_sql import unscheduled_page
from dlq_handler.loop import every
from dlq_handler.timeouts.decide_unscheduled import UNSCHEDULED, decide_unscheduled
from dlq_handler.timeouts.decision import End, NotStale, RepublishRequest, StaleRecord, Wait
from dlq_handler.timeouts.leader_scan import CHECK_SECONDS, LeaderScan, QuietTime, ScanInterrupted
from dlq_handler.timeouts.message_recorders import LostRequest
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.timeouts.recorder import UnscheduledEnd


class UnscheduledWatch:
    def __init__(
        self,
        scan: LeaderScan,
        options: MonitorOptions,
        queues: QueueCounter,
        *,
        ends: Ender[UnscheduledEnd, StaleRecord],
        requests: Ender[LostRequest, StaleRecord],
        is_shadow: bool,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        """`is_shadow`: which earlier requests count."""
        self._scan, self._options, self._queues, self._now = scan, options, queues, now
        self._ends, self._requests, self._is_shadow = ends, requests, is_shadow
        self._check_seconds = min(CHECK_SECONDS, options.interval_seconds)
        self._quiet = QuietTime(self._check_seconds)
        self._next_scan = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        self._scan.stop = stop
        await every(self._check_seconds, self.tick, stop, name="unscheduled-watch")

    async def tick(self) -> None:
        """Check the scheduler's queue; scan when a scan is due and that queue was quiet for long enough."""
        if not self._scan.leadership.is_leader:
            return
        self._quiet.note(await self._queues.count_known(REQUESTS_QUEUE), self._now())
        quiet_seconds = self._quiet.seconds
        if quiet_seconds is None or quiet_seconds < self._options.quiet_seconds:
            return
        if self._now() < self._next_scan:
            return
        self._next_scan = self._now() + self._options.interval_seconds
        try:
            for status in sorted(UNSCHEDULED):
                if await self._scan_status(status, quiet_seconds):
                    self._quiet.restart()
                    return
        except ScanInterrupted:
            return
        except Contended as error:
            raise Unavailable("database", f"rows are locked: {error}") from error

    async def _scan_status(self, status: ExecutionStatus, quiet_seconds: float) -> int:
        """Ends with the first page with a request that was published again; returns the number of these requests."""
        read = partial(
            unscheduled_page,
            status=status,
            older_than_seconds=self._options.unscheduled_timeout_seconds,
            limit=self._options.batch_size,
            is_shadow=self._is_shadow,
        )
        asked_at = monotonic_seconds()
        async for rows in self._scan.pages(read, BEGINNING):
            if rows:
                self._scan.gate.see_clock(rows[0].now, asked_at=asked_at, answered_at=monotonic_seconds())
            if requested := await self._act(rows, quiet_seconds):
                return requested
            asked_at = monotonic_seconds()
        return 0

    async def _act(self, rows: Sequence[Unscheduled], quiet_seconds: float) -> int:
        """Returns how many were requested again."""
        ends: list[UnscheduledEnd] = []
        requests: list[LostRequest] = []
        for row in rows:
            decision = decide_unscheduled(
                row,
                quiet_seconds=quiet_seconds,
                options=self._options,
                steady_since=self._scan.gate.steady_since,
            )
            match decision:
                case RepublishRequest():
                    requests.append(LostRequest(row, decision))
                case End():
                    ends.append(UnscheduledEnd(row.execution, decision))
                case Wait() | NotStale():
                    pass
                case _:
                    assert_never(decision)
        await self._ends.commit(ends)
        return len((await self._requests.commit(requests)).records)
