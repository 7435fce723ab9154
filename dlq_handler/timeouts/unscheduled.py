"""Find executions that were requested and are not scheduled, and publish their requests again.

Promises: the requests of one execution have growing pauses and a limit, whatever replica leads and however often its
row changes. Only the leader publishes them, and only while the scheduler's queue was empty, with a consumer, at every
check of the quiet time. It publishes one batch, then waits for the quiet time again, so that a scheduler that was away
for long is not flooded. Never: ends an execution, unless the operator asked for it; then guarded, braked and published
like every other end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings.outbox_sql import add_to_outbox
from dlq_handler.errors import Contended, RowRejected, Unavailable
from dlq_handler.host.end_executions_sql import end_executions
from dlq_handler.host.ending import ending
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.executions_sql import lock_executions
from dlq_handler.host.messages import Destination, ExecutionMessage
from dlq_handler.host.names import REQUESTED_KEY
from dlq_handler.host.unscheduled_sql import (
    BEGINNING,
    Place,
    UnscheduledRow,
    count_requests,
    requests_for,
    unscheduled_page,
)
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decide_unscheduled import UNSCHEDULED, UnscheduledPolicy, decide_unscheduled
from dlq_handler.timeouts.decision import AnnounceAgain, End, StaleOutcome, record_of, refused_record
from dlq_handler.timeouts.quiet_spell import LOOK_SECONDS, QuietSpell
from dlq_handler.timeouts.reconcile import Finding
from dlq_handler.timeouts.result import stale_result

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnscheduledWatchPolicy:
    decide: UnscheduledPolicy
    replica: str
    destination: Destination
    check_interval_seconds: float
    page_size: int
    is_shadow: bool = False

    @property
    def look_seconds(self) -> float:
        return min(LOOK_SECONDS, self.check_interval_seconds)


class UnscheduledWatch:
    def __init__(
        self,
        database: Database,
        policy: UnscheduledWatchPolicy,
        *,
        leadership: Leadership,
        brake: Brake,
        gate: Gate,
        requests_queue: Callable[[], Awaitable[QueueCounts | None]],
        metrics: Metrics,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        """`requests_queue` looks at the scheduler's queue; None: there is none."""
        self._database, self._policy, self._leadership = database, policy, leadership
        self._brake, self._gate, self._metrics = brake, gate, metrics
        self._requests_queue, self._now = requests_queue, now
        self._quiet = QuietSpell(policy.look_seconds)
        self._next_scan = 0.0
        self._stop = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        await every(self._policy.look_seconds, self.tick, stop, name="unscheduled-watch")

    async def tick(self) -> None:
        """Look at the scheduler's queue; scan when it is time to, and that queue was quiet for long enough."""
        if not self._leadership.is_leader:
            return
        self._quiet.looked(await self._requests_queue(), self._now())
        quiet_seconds = self._quiet.seconds
        if quiet_seconds is None or quiet_seconds < self._policy.decide.quiet_seconds:
            return
        if self._now() < self._next_scan:
            return
        self._next_scan = self._now() + self._policy.check_interval_seconds
        try:
            for status in sorted(UNSCHEDULED):
                if await self._scan(status, quiet_seconds):
                    self._quiet.begin_anew()
                    return
        except Contended as error:
            raise Unavailable("database", f"rows are locked: {error}") from error

    async def _scan(self, status: ExecutionStatus, quiet_seconds: float) -> int:
        """Ends with the first page of which something was announced again; the answer is how many."""
        policy = self._policy
        announced = 0
        place: Place | None = BEGINNING
        while place is not None and not announced and self._may_go_on():
            asked_at = monotonic_seconds()
            async with self._database.transaction() as tx:
                rows = await unscheduled_page(
                    tx,
                    status,
                    older_than_seconds=policy.decide.timeout_seconds,
                    after=place,
                    limit=policy.page_size,
                    is_shadow=policy.is_shadow,
                )
            if rows:
                self._gate.see_clock(rows[0].now, asked_at=asked_at, answered_at=monotonic_seconds())
            last = rows[-1].row.execution if len(rows) == policy.page_size else None
            place = (last.updated, last.id) if last is not None else None
            announced = await self._act(status, rows, quiet_seconds)
        return announced

    def _may_go_on(self) -> bool:
        """To be asked before each page: there may be thousands of them."""
        self._gate.check()
        return self._leadership.is_leader and not self._stop.is_set()

    async def _act(
        self, status: ExecutionStatus, rows: Sequence[UnscheduledRow], quiet_seconds: float
    ) -> int:
        """How many were announced again."""
        again: list[tuple[UnscheduledRow, AnnounceAgain]] = []
        for one in rows:
            decision = decide_unscheduled(
                one.row,
                quiet_seconds=quiet_seconds,
                policy=self._policy.decide,
                now=one.now,
                steady_since=self._gate.steady_since,
            )
            if isinstance(decision, AnnounceAgain):
                again.append((one, decision))
            elif isinstance(decision, End):
                # One a transaction: they are few, and one that the database refuses keeps no other one waiting.
                await self._end(one, decision)
        return await self._announce_again(status, again) if again else 0

    async def _announce_again(
        self, status: ExecutionStatus, again: Sequence[tuple[UnscheduledRow, AnnounceAgain]]
    ) -> int:
        policy = self._policy
        records = [
            record_of(
                one.row.execution, decision, now=one.now, replica=policy.replica, is_shadow=policy.is_shadow
            )
            for one, decision in again
        ]
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            before = {one.row.execution.id: one.row.requests for one, _ in again}
            counted = await count_requests(tx, before, is_shadow=policy.is_shadow)
            await decisions_sql.record(tx, [one for one in records if one.execution_id in counted])
            requests = await requests_for(
                tx,
                {
                    one.row.execution.id: one.row.execution
                    for one, _ in again
                    if one.row.execution.id in counted
                },
                number_of={one: before[one] + 1 for one in counted},
                destination=Destination(policy.destination.exchange, REQUESTED_KEY),
                now=again[0][0].now,
            )
            await self._publish(tx, requests)
        self._metrics.reconciled.labels(Finding.LOST_REQUEST).inc(len(requests))
        if requests:
            log.warning(
                "execution.request_republished",
                status=status.value,
                execution_ids=[request.execution_id for request in requests],
                is_shadow=policy.is_shadow,
            )
        return len(requests)

    async def _end(self, one: UnscheduledRow, decision: End) -> None:
        execution = one.row.execution
        try:
            is_ended = await self._end_alone(one, decision)
        except RowRejected as error:
            await self._record_refused(one, error)
            return
        if is_ended:
            self._metrics.stale_executions.labels(execution.status.value, decision.outcome).inc()
            log.info(
                "stale_execution.decided",
                execution_id=execution.id,
                outcome=decision.outcome.value,
                original_status=execution.status.value,
                worker_id=execution.worker_id,
                explanation=decision.explanation,
                is_shadow=self._policy.is_shadow,
            )

    async def _end_alone(self, one: UnscheduledRow, decision: End) -> bool:
        policy, execution = self._policy, one.row.execution
        record = record_of(
            execution, decision, now=one.now, replica=policy.replica, is_shadow=policy.is_shadow
        )
        end = ending(
            execution,
            decision.becomes,
            stale_result(execution, decision, one.now),
            destination=policy.destination,
            now=one.now,
        )
        async with self._database.transaction() as tx:
            # Before the lease: the brake's lock comes first everywhere.
            room = None if policy.is_shadow else await self._brake.room(tx)
            await self._leadership.fence(tx)
            if policy.is_shadow:
                return bool(await decisions_sql.record(tx, [record]))
            if room == 0:
                await self._brake.note(tx, 0, 1)
                return False
            view = await lock_executions(tx, [execution.id])
            if view.executions.get(execution.id) != execution or not await end_executions(tx, [end]):
                return False
            await decisions_sql.record(tx, [record])
            await self._publish(tx, [end.message])
            return True

    async def _record_refused(self, one: UnscheduledRow, error: RowRejected) -> None:
        execution = one.row.execution
        log.error("stale_execution.refused", execution_id=execution.id, error=str(error))
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            attempts = 1 + await decisions_sql.refusals(tx, execution.id, execution.updated)
            record = refused_record(
                execution, str(error), attempts=attempts, now=one.now, replica=self._policy.replica
            )
            await decisions_sql.record(tx, [record])
        self._metrics.stale_executions.labels(execution.status.value, StaleOutcome.UPDATE_FAILED).inc()

    async def _publish(self, tx: Transaction, messages: Sequence[ExecutionMessage]) -> None:
        if not self._policy.is_shadow:
            # Without a lease, as it is not urgent: the relay finds it at its next poll.
            await add_to_outbox(tx, messages)
