"""Messages that the timeout monitor publishes without ending an execution, in the ending transaction: requests that are
published again, and completion events that another component did not publish.

Promises: each message is written once, with the record of its decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import structlog

from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.options import RecordOptions
from dlq_handler.endings.recording import Applied, Batch, Proposal, Recorder
from dlq_handler.endings.writers import Writer
from dlq_handler.host.ends import EndWithoutEvent
from dlq_handler.host.execution import Unscheduled
from dlq_handler.host.executions_sql import LockedView
from dlq_handler.host.messages import Destination
from dlq_handler.host.names import REQUESTED_KEY
from dlq_handler.host.unscheduled_sql import count_requests, requests_for
from dlq_handler.metrics import Metrics
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decision import RepublishRequest, StaleRecord, record_of
from dlq_handler.timeouts.findings import ReconcileFinding, event_of, published_record
from dlq_handler.timeouts.recorder import StaleProposal

log = structlog.get_logger()

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LostRequest:
    row: Unscheduled
    decision: RepublishRequest

    @property
    def execution_id(self) -> int:
        return self.row.execution.id


class _PublishBatch(Batch[StaleRecord]):
    """`decide` writes the records: only what is recorded now is published now."""

    def __init__(self) -> None:
        self._proposals: Sequence[StaleProposal] = ()

    async def record(self, tx: Transaction, applied: Applied) -> Sequence[StaleRecord]:  # noqa: ARG002  # in `decide`
        return [one.record for one in self._proposals]


class _PublishRecorder(Recorder[Item, StaleRecord]):
    """Nothing is recorded of a refused item: the next scan finds it again."""

    def __init__(self, finding: ReconcileFinding, options: RecordOptions, metrics: Metrics) -> None:
        self.finding, self.options, self._metrics = finding, options, metrics
        self.subject = finding.value

    def _count(self, records: Sequence[StaleRecord]) -> list[int]:
        self._metrics.reconciled.labels(self.finding).inc(len(records))
        return [record.execution_id for record in records]


class RequestRecorder(_PublishRecorder[LostRequest]):
    def __init__(self, options: RecordOptions, metrics: Metrics) -> None:
        super().__init__(ReconcileFinding.LOST_REQUEST, options, metrics)

    def log(self, records: Sequence[StaleRecord], now: datetime) -> None:  # noqa: ARG002  # no latency is measured
        if execution_ids := self._count(records):
            log.warning(
                "execution.request_republished",
                execution_ids=execution_ids,
                is_shadow=self.options.is_shadow,
            )

    def batch(self, items: Sequence[LostRequest]) -> "RequestBatch":
        return RequestBatch(self.options, items)


class RequestBatch(_PublishBatch):
    def __init__(self, options: RecordOptions, items: Sequence[LostRequest]) -> None:
        super().__init__()
        self._options, self._items = options, items

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[Proposal]:
        options = self._options
        before = {item.execution_id: item.row.requests for item in self._items}
        counted = await count_requests(tx, before, is_shadow=options.is_shadow)
        messages = await requests_for(
            tx,
            {item.execution_id: item.row.execution for item in self._items if item.execution_id in counted},
            number_of={one: before[one] + 1 for one in counted},
            destination=Destination(options.destination.exchange, REQUESTED_KEY),
            now=view.now,
        )
        message_of = {message.execution_id: message for message in messages}
        self._proposals = [
            StaleProposal(
                record_of(
                    item.row.execution,
                    item.decision.outcome,
                    item.decision.explanation,
                    item.decision.evidence,
                    options=options,
                    now=view.now,
                ),
                message_of[item.execution_id],
            )
            for item in self._items
            if item.execution_id in message_of
        ]
        await decisions_sql.record(tx, [one.record for one in self._proposals])
        return self._proposals


class EventRecorder(_PublishRecorder[EndWithoutEvent]):
    def log(self, records: Sequence[StaleRecord], now: datetime) -> None:  # noqa: ARG002  # no latency is measured
        if execution_ids := self._count(records):
            log.warning(
                "execution.completion_published",
                finding=self.finding.value,
                execution_ids=execution_ids,
                is_shadow=self.options.is_shadow,
            )

    def batch(self, items: Sequence[EndWithoutEvent]) -> "EventBatch":
        return EventBatch(self, items)


class EventBatch(_PublishBatch):
    def __init__(self, recorder: EventRecorder, items: Sequence[EndWithoutEvent]) -> None:
        super().__init__()
        self._recorder, self._items = recorder, items

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[Proposal]:
        options = self._recorder.options
        proposals = [
            StaleProposal(
                published_record(end, self._recorder.finding, options=options, now=view.now),
                event_of(end, destination=options.destination, now=view.now),
            )
            for end in self._items
        ]
        written = await decisions_sql.record(tx, [one.record for one in proposals])
        self._proposals = [one for one in proposals if one.execution_id in written]
        return self._proposals


class EndPublisher:
    """Completion events of ends that another component wrote without one."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        leadership: Leadership,
        options: RecordOptions,
        metrics: Metrics,
        *,
        batch_size: int,
    ) -> None:
        self.options = options
        self._enders = {
            finding: Ender(
                database,
                writer,
                EventRecorder(finding, options, metrics),
                batch_size,
                leadership=leadership,
            )
            for finding in (
                ReconcileFinding.HELD_SLOT,
                ReconcileFinding.MISSING_EVENT,
                ReconcileFinding.UNPUBLISHED_END,
            )
        }

    async def publish(self, ends: Sequence[EndWithoutEvent], finding: ReconcileFinding) -> int:
        """Returns how many of them were not published before."""
        return len((await self._enders[finding].commit(ends)).records)
