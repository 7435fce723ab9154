"""Decisions of the timeout monitor in the ending transaction (endings/ender.py): what they are based on, how they are
recorded and logged.

Promises: an execution that the database refuses to end is recorded as `update_failed` and left alone until its next
attempt is due. In shadow mode only records and checks of workers are written. `gather_cases` writes nothing, so that
`executions explain` uses exactly the facts by which the monitor decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar, assert_never

import structlog

from dlq_handler.broker.publish_times import PublishRecorder, PublishView
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings.options import RecordOptions
from dlq_handler.endings.recording import (
    Applied,
    Batch,
    Change,
    Proposal,
    Recorder,
    Refusal,
    Step,
    log_together,
)
from dlq_handler.host import stale_sql
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.executions_sql import LockedView, lock_executions
from dlq_handler.host.messages import ending
from dlq_handler.host.stale_sql import Candidate
from dlq_handler.host.workers_sql import read_workers
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.case import ScanFacts, StaleCase, StaleLimits, WorkerView
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import (
    End,
    NotStale,
    StaleOutcome,
    StaleRecord,
    Wait,
    record_of,
    refused_record,
    stale_result,
)
from dlq_handler.workers import worker_observations_sql
from dlq_handler.workers.worker_observation import WorkerObservation, observe_again

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StaleProposal:
    record: StaleRecord
    change: Change

    @property
    def key(self) -> int:
        return self.record.execution_id

    @property
    def execution_id(self) -> int:
        return self.record.execution_id


def propose_end(execution: Execution, decision: End, options: RecordOptions, now: datetime) -> StaleProposal:
    result = stale_result(execution, decision, now)
    return StaleProposal(
        record_of(
            execution, decision.outcome, decision.explanation, decision.evidence, options=options, now=now
        ),
        ending(execution, decision.becomes, result, destination=options.destination, now=now),
    )


@dataclass(frozen=True, slots=True)
class Suspect:
    """A candidate with the facts of its scan."""

    candidate: Candidate
    facts: ScanFacts

    @property
    def execution_id(self) -> int:
        return self.candidate.id


@dataclass(frozen=True, slots=True)
class UnscheduledEnd:
    """An execution that was never scheduled, read without a lock, and the decision to end it."""

    execution: Execution
    decision: End

    @property
    def execution_id(self) -> int:
        return self.execution.id


AnEnd = TypeVar("AnEnd", Suspect, UnscheduledEnd)


class EndRecorder(Recorder[AnEnd, StaleRecord]):
    """Executions that end because no dead letter reports them."""

    subject = "stale executions"

    def __init__(self, options: RecordOptions, metrics: Metrics) -> None:
        self.options, self._metrics = options, metrics

    @property
    def if_refused(self) -> Sequence[Step[AnEnd, StaleRecord]]:
        # Shadow mode changes nothing that could be refused.
        return () if self.options.is_shadow else (self._record_refusal,)

    @property
    def if_too_slow(self) -> Sequence[Step[AnEnd, StaleRecord]]:
        """Otherwise every scan would end at this execution."""
        return self.if_refused

    async def _record_refusal(
        self, tx: Transaction, item: AnEnd, refusal: Refusal, now: datetime
    ) -> StaleRecord | None:
        execution = (await lock_executions(tx, [item.execution_id])).executions.get(item.execution_id)
        if execution is None:
            return None
        attempts = 1 + await decisions_sql.refusals(tx, execution.id, execution.updated)
        record = refused_record(execution, refusal.error, attempts=attempts, options=self.options, now=now)
        await decisions_sql.record(tx, [record])
        return record

    def log(self, records: Sequence[StaleRecord], now: datetime) -> None:  # noqa: ARG002  # no latency is measured
        for record in records:
            self._metrics.stale_executions.labels(record.original_status, record.outcome).inc()
        decided = [one for one in records if one.outcome is not StaleOutcome.UPDATE_FAILED]
        if log_together(self.subject, decided, is_shadow=self.options.is_shadow):
            return
        for record in decided:
            log.info(
                "stale_execution.decided",
                execution_id=record.execution_id,
                outcome=record.outcome.value,
                original_status=record.original_status,
                worker_id=record.worker_id,
                explanation=record.explanation,
                is_shadow=record.is_shadow,
            )

    def log_refused(self, item: AnEnd, refusal: Refusal) -> None:
        log.error(
            "stale_execution.refused",
            execution_id=item.execution_id,
            error=refusal.error,
            frames=refusal.frames,
        )


class SuspectRecorder(EndRecorder[Suspect]):
    """Candidates of a scan: locked, then decided."""

    def __init__(
        self,
        options: RecordOptions,
        metrics: Metrics,
        *,
        limits: StaleLimits,
        gate: Gate,
        publishes: PublishRecorder,
    ) -> None:
        super().__init__(options, metrics)
        self.limits, self.gate, self.publishes = limits, gate, publishes

    def batch(self, items: Sequence[Suspect]) -> "SuspectBatch":
        return SuspectBatch(self, items)


class UnscheduledEndRecorder(EndRecorder[UnscheduledEnd]):
    def batch(self, items: Sequence[UnscheduledEnd]) -> "UnscheduledEndBatch":
        return UnscheduledEndBatch(self.options, items)


class _EndBatch(Batch[StaleRecord]):
    """The ends of one transaction. A row that is locked elsewhere is left to the next scan."""

    def __init__(self, items: Sequence[Suspect] | Sequence[UnscheduledEnd]) -> None:
        self.execution_ids = [item.execution_id for item in items]
        self._proposals: Sequence[StaleProposal] = ()

    async def record(self, tx: Transaction, applied: Applied) -> Sequence[StaleRecord]:
        records = [one.record for one in self._proposals if one.execution_id in applied.ended]
        # Shadow mode meets the same execution at every scan, and records it once.
        written = await decisions_sql.record(tx, records)
        return [one for one in records if one.execution_id in written]


class SuspectBatch(_EndBatch):
    def __init__(self, recorder: SuspectRecorder, items: Sequence[Suspect]) -> None:
        super().__init__(items)
        # All items come from one batch of a scan.
        self._recorder, self._facts = recorder, items[0].facts
        self._new_checks: Mapping[int, WorkerObservation] = {}

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[Proposal]:
        recorder, is_shadow = self._recorder, self._recorder.options.is_shadow
        cases, self._new_checks = await gather_cases(
            tx,
            view,
            self._facts,
            recorder.limits,
            watched_seconds=recorder.gate.watched_seconds,
            steady_since=recorder.gate.steady_since,
            publishes=recorder.publishes.view(),
            is_shadow=is_shadow,
        )
        await worker_observations_sql.keep_observations(tx, self._new_checks.values(), is_shadow=is_shadow)
        proposals: list[StaleProposal] = []
        for one in cases:
            decision = decide_stale(one)
            match decision:
                case End():
                    proposals.append(propose_end(one.execution, decision, recorder.options, view.now))
                case Wait() | NotStale():
                    pass
                case _:
                    assert_never(decision)
        self._proposals = proposals
        return proposals

    def observe(self, *, postponed: int, seconds: float) -> None:  # noqa: ARG002  # the metrics count records
        self._facts.checks.update(self._new_checks)


class UnscheduledEndBatch(_EndBatch):
    def __init__(self, options: RecordOptions, items: Sequence[UnscheduledEnd]) -> None:
        super().__init__(items)
        self._options, self._items = options, items

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[Proposal]:  # noqa: ARG002  # reads no more
        self._proposals = [
            propose_end(item.execution, item.decision, self._options, view.now)
            for item in self._items
            if view.executions.get(item.execution_id) == item.execution
        ]
        return self._proposals


async def gather_cases(
    tx: Transaction,
    view: LockedView,
    facts: ScanFacts,
    limits: StaleLimits,
    *,
    watched_seconds: float,
    steady_since: datetime | None,
    publishes: PublishView,
    is_shadow: bool,
) -> tuple[Sequence[StaleCase], Mapping[int, WorkerObservation]]:
    """The cases, and new checks of workers, which a caller that decides by them must store.

    A scan checks each worker once; a second check in the same scan would confirm nothing. `is_shadow`: which earlier
    checks count.
    """
    executions = view.executions.values()
    worker_ids = {one.worker_id for one in executions if one.worker_id is not None}
    workers = await read_workers(tx, worker_ids) if worker_ids else {}
    unchecked = worker_ids - facts.checks.keys()
    before = (
        await worker_observations_sql.read_observations(tx, unchecked, is_shadow=is_shadow)
        if unchecked
        else {}
    )
    new_checks = {
        one: observe_again(
            one,
            before.get(one),
            worker=workers.get(one),
            queue=facts.queues.get(one),
            is_queue_known=one in facts.queues,
            now=view.now,
            watched_seconds=watched_seconds,
            availability=limits.availability,
            confirm_after_seconds=limits.monitor.confirm_after_seconds,
        )
        for one in unchecked
    }
    checks = {**facts.checks, **new_checks}
    doubted = [
        one.id
        for one in executions
        if one.status is ExecutionStatus.RUNNING and one.worker_id in facts.processes
    ]
    run_limits = await stale_sql.own_run_limits(tx, doubted) if doubted else {}
    views = {
        one: WorkerView(
            row=workers.get(one),
            check=checks.get(one),
            queue=facts.queues.get(one),
            is_queue_known=one in facts.queues,
            process=facts.processes.get(one),
        )
        for one in worker_ids
    }
    cases = [
        StaleCase(
            execution=execution,
            worker=WorkerView() if execution.worker_id is None else views[execution.worker_id],
            now=view.now,
            watched_seconds=watched_seconds,
            steady_since=steady_since,
            longest_ttl_ms=facts.longest_ttl_ms,
            publishes=publishes,
            intake_undrained_seconds=facts.intake_undrained_seconds,
            own_run_limit_seconds=run_limits.get(execution.id),
            limits=limits,
        )
        for execution in executions
    ]
    return cases, new_checks
