"""Decisions of the timeout monitor in the ending transaction (endings/ender.py): how they are recorded and logged.

Promises: an execution that the database refuses to end is recorded as `update_failed` and left alone until its next
attempt is due. In shadow mode only records and checks of workers are written.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from dlq_handler.broker.publish.publish_recorder import PublishRecorder
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings.decision_log import log_together
from dlq_handler.endings.ender import Applied, Change, Proposal, Step
from dlq_handler.endings.record_options import RecordOptions
from dlq_handler.endings.refusal import Refusal
from dlq_handler.host.ending import ending
from dlq_handler.host.execution import Execution
from dlq_handler.host.executions_sql import LockedView, lock_executions
from dlq_handler.host.stale_sql import Candidate
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.case import StaleLimits
from dlq_handler.timeouts.cases import Processes, WorkerQueues, gather_cases
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import (
    End,
    StaleOutcome,
    StaleRecord,
    record_of,
    refused_record,
    stale_result,
)
from dlq_handler.workers import worker_observations_sql
from dlq_handler.workers.worker_observation import WorkerObservation

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFacts:
    """What a scan knows about the workers of a batch of candidates."""

    queues: WorkerQueues
    looks: dict[int, WorkerObservation]
    """The checks of this scan so far. Grows as batches are committed: a scan checks each worker once."""
    longest_ttl_ms: int | None = None
    """The longest TTL of any worker queue observed."""
    intake_undrained_seconds: float | None = None
    """How long dead letters may have been waiting in the intake queue; None: they are not."""
    processes: Processes = field(default_factory=dict)


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


class EndRecorder:
    """Executions that end because no dead letter reports them."""

    subject = "stale executions"

    def __init__(self, options: RecordOptions, metrics: Metrics) -> None:
        self.options, self._metrics = options, metrics

    @property
    def if_refused(self) -> Sequence[Step[Suspect | UnscheduledEnd, StaleRecord]]:
        # Shadow mode changes nothing that could be refused.
        return () if self.options.is_shadow else (self._record_refusal,)

    @property
    def if_too_slow(self) -> Sequence[Step[Suspect | UnscheduledEnd, StaleRecord]]:
        """Otherwise every scan would end at this execution."""
        return self.if_refused

    async def _record_refusal(
        self, tx: Transaction, item: Suspect | UnscheduledEnd, refusal: Refusal, now: datetime
    ) -> StaleRecord | None:
        execution = (await lock_executions(tx, [item.execution_id])).executions.get(item.execution_id)
        if execution is None:
            return None
        attempts = 1 + await decisions_sql.refusals(tx, execution.id, execution.updated)
        record = refused_record(execution, refusal.error, attempts=attempts, options=self.options, now=now)
        await decisions_sql.record(tx, [record])
        return record

    async def rehearse(self, tx: Transaction) -> None:
        """The monitor finds a missing right with its first batch."""

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

    def log_refused(self, item: Suspect | UnscheduledEnd, refusal: Refusal) -> None:
        log.error(
            "stale_execution.refused",
            execution_id=item.execution_id,
            error=refusal.error,
            frames=refusal.frames,
        )


class SuspectRecorder(EndRecorder):
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


class UnscheduledEndRecorder(EndRecorder):
    def batch(self, items: Sequence[UnscheduledEnd]) -> "UnscheduledEndBatch":
        return UnscheduledEndBatch(self.options, items)


class _EndBatch:
    """The ends of one transaction. A row that is locked elsewhere is left to the next scan."""

    def __init__(self, execution_ids: Collection[int]) -> None:
        self.execution_ids = execution_ids
        self.postponed: Collection[Hashable] = ()
        self._proposals: Sequence[StaleProposal] = ()

    async def record(self, tx: Transaction, applied: Applied) -> Sequence[StaleRecord]:
        records = [one.record for one in self._proposals if one.execution_id in applied.ended]
        # Shadow mode meets the same execution at every scan, and records it once.
        written = await decisions_sql.record(tx, records)
        return [one for one in records if one.execution_id in written]

    async def count(self, tx: Transaction) -> None:
        """The records are all that is kept."""

    def observe(self, *, postponed: int, seconds: float) -> None:
        """The metrics count records."""


class SuspectBatch(_EndBatch):
    def __init__(self, recorder: SuspectRecorder, items: Sequence[Suspect]) -> None:
        super().__init__([item.execution_id for item in items])
        # All items come from one batch of a scan.
        self._recorder, self._facts = recorder, items[0].facts
        self._new_looks: dict[int, WorkerObservation] = {}

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[Proposal]:
        recorder, facts = self._recorder, self._facts
        gathered = await gather_cases(
            tx,
            view,
            queues=facts.queues,
            looks=facts.looks,
            watched_seconds=recorder.gate.watched_seconds,
            steady_since=recorder.gate.steady_since,
            longest_ttl_ms=facts.longest_ttl_ms,
            publishes=recorder.publishes.view(),
            intake_undrained_seconds=facts.intake_undrained_seconds,
            processes=facts.processes,
            limits=recorder.limits,
            is_shadow=recorder.options.is_shadow,
        )
        self._new_looks = dict(gathered.new_looks)
        await worker_observations_sql.keep_observations(
            tx, self._new_looks.values(), is_shadow=recorder.options.is_shadow
        )
        decisions = [(case.execution, decide_stale(case)) for case in gathered.cases]
        self._proposals = [
            propose_end(execution, decision, recorder.options, view.now)
            for execution, decision in decisions
            if isinstance(decision, End)
        ]
        return self._proposals

    def observe(self, *, postponed: int, seconds: float) -> None:  # noqa: ARG002  # the metrics count records
        self._facts.looks.update(self._new_looks)


class UnscheduledEndBatch(_EndBatch):
    def __init__(self, options: RecordOptions, items: Sequence[UnscheduledEnd]) -> None:
        super().__init__([item.execution_id for item in items])
        self._options, self._items = options, items

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[Proposal]:  # noqa: ARG002  # reads no more
        self._proposals = [
            propose_end(item.execution, item.decision, self._options, view.now)
            for item in self._items
            if view.executions.get(item.execution_id) == item.execution
        ]
        return self._proposals
