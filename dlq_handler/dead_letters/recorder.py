"""Dead letters in the ending transaction: decided and recorded, or recorded undecided.

A quorum queue drops a message after its delivery limit. So a dead letter that was delivered often and never decided is
recorded as `deferred` and acknowledged, and decided from that record (reprocess.py): what is recorded cannot be lost.

Promises: the last step of recording a refused dead letter stores nothing that a sender chose but bytes, so the content
of no dead letter makes it fail. Never: acknowledges a dead letter.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.decide import (
    Circumstances,
    LetterProposal,
    decide_batch,
    executions_found,
    first_of_each,
    needs_execution,
    workers_in_question,
)
from dlq_handler.dead_letters.groups_sql import count_arrivals, count_letters
from dlq_handler.dead_letters.letter import DeadLetter, without_texts
from dlq_handler.dead_letters.record import Entry, bare_entry, deferred, entries_of, update_failed
from dlq_handler.endings.options import RecordOptions
from dlq_handler.endings.recording import Applied, Batch, Recorder, Refusal, Step, log_together
from dlq_handler.host import workers_sql
from dlq_handler.host.executions_sql import LockedView
from dlq_handler.host.names import DISPATCH_MESSAGE_TYPE
from dlq_handler.host.worker import AvailabilityPolicy, Worker
from dlq_handler.metrics import Metrics
from dlq_handler.safety.gate_service import Gate

log = structlog.get_logger()


class _Recorder(Recorder[DeadLetter, Entry]):
    """How dead letters are stored, decided or not."""

    subject = "dead letters"

    def __init__(self, options: RecordOptions, metrics: Metrics) -> None:
        self.options, self.metrics = options, metrics
        self.recorded = 0
        """Dead letters that this process has recorded."""

    @property
    def if_refused(self) -> Sequence[Step[DeadLetter, Entry]]:
        return (self._whole, self._without_details, self._without_texts, self._bare)

    async def rehearse(self, tx: Transaction) -> None:
        await records_sql.rehearse(tx)

    def log(self, records: Sequence[Entry], now: datetime) -> None:
        """`now`: the database's clock at the time of the decision."""
        self.recorded += len(records)
        for entry in records:
            died_at = entry.letter.died_at
            latency = (now - died_at).total_seconds() if died_at else None
            self.metrics.count_dead_letter(entry.letter.reason, entry.outcome, latency)
        if log_together(self.subject, records, is_shadow=self.options.is_shadow):
            return
        for entry in records:
            letter = entry.letter
            log.info(
                "dead_letter.decided",
                outcome=entry.outcome.value,
                reason=letter.reason,
                execution_id=letter.execution_id,
                message_id=letter.message_id,
                queue=letter.queue,
                explanation=entry.explanation,
            )

    def log_refused(self, item: DeadLetter, refusal: Refusal) -> None:
        log.error(
            "dead_letter.refused",
            execution_id=item.execution_id,
            message_id=item.message_id,
            error=refusal.error,
            frames=refusal.frames,
        )

    async def _whole(self, tx: Transaction, letter: DeadLetter, refusal: Refusal, now: datetime) -> Entry:
        entry = update_failed(letter, refusal, attempts=1, now=now)
        options = self.options
        recorded = await records_sql.record_letters(
            tx, [entry], replica=options.replica, is_shadow=options.is_shadow
        )
        if not options.is_shadow:
            await count_letters(tx, recorded, names=options.names)
        return entry

    async def _without_details(
        self, tx: Transaction, letter: DeadLetter, refusal: Refusal, now: datetime
    ) -> Entry:
        """Without group, headers and evidence: senders can put anything into these."""
        return await self._uncounted(tx, replace(letter, headers="{}"), refusal, now)

    async def _without_texts(
        self, tx: Transaction, letter: DeadLetter, refusal: Refusal, now: datetime
    ) -> Entry:
        """A dispatch keeps its numbers and is tried again: the execution waits for it."""
        if letter.execution_id is None or letter.message_type != DISPATCH_MESSAGE_TYPE:
            return await self._bare(tx, letter, refusal, now)
        return await self._uncounted(tx, without_texts(letter, self.options.names), refusal, now)

    async def _uncounted(self, tx: Transaction, letter: DeadLetter, refusal: Refusal, now: datetime) -> Entry:
        entry = update_failed(letter, refusal, attempts=1, now=now)
        await records_sql.record_letters(
            tx,
            [entry],
            replica=self.options.replica,
            is_shadow=self.options.is_shadow,
            has_group=False,
        )
        return entry

    async def _bare(self, tx: Transaction, letter: DeadLetter, refusal: Refusal, _: datetime) -> Entry:
        entry = bare_entry(letter, refusal.error)
        await records_sql.record_bare(
            tx, entry, replica=self.options.replica, is_shadow=self.options.is_shadow
        )
        return entry


class LetterRecorder(_Recorder):
    """Dead letters that are decided."""

    def __init__(
        self,
        options: RecordOptions,
        metrics: Metrics,
        *,
        gate: Gate,
        availability: AvailabilityPolicy,
    ) -> None:
        super().__init__(options, metrics)
        self.gate, self._availability = gate, availability

    def batch(self, items: Sequence[DeadLetter]) -> "LetterBatch":
        return LetterBatch(self, items)

    async def propose(
        self, tx: Transaction, letters: Sequence[DeadLetter], view: LockedView
    ) -> list[LetterProposal]:
        """The pure decision, with the rows that it needs."""
        return decide_batch(
            letters,
            executions=view.executions,
            workers=await self._read_workers(tx, letters, view),
            circumstances=Circumstances(
                link_age_seconds=self.gate.watched_seconds,
                availability=self._availability,
                names=self.options.names,
                unfamiliar=view.unfamiliar,
            ),
            destination=self.options.destination,
            now=view.now,
        )

    async def _read_workers(
        self, tx: Transaction, letters: Sequence[DeadLetter], view: LockedView
    ) -> Mapping[int, Worker]:
        wanted: set[int] = set()
        for letter in letters:
            execution = view.executions.get(letter.execution_id) if letter.execution_id is not None else None
            wanted |= workers_in_question(letter, execution, self.options.names)
        return await workers_sql.read_workers(tx, wanted) if wanted else {}


class DeferringRecorder(_Recorder):
    """Dead letters that are recorded undecided."""

    def __init__(self, options: RecordOptions, metrics: Metrics, *, after_deliveries: int) -> None:
        super().__init__(options, metrics)
        self.after_deliveries = after_deliveries

    def is_due(self, letter: DeadLetter, *, own_count: int = 0) -> bool:
        """`own_count`: deliveries that this process counted, for queues that count none."""
        return max(letter.deliveries, own_count) >= self.after_deliveries

    def batch(self, items: Sequence[DeadLetter]) -> "DeferredBatch":
        return DeferredBatch(self, items)


class _Batch(Batch[Entry]):
    """The records of one transaction. A dead letter that is on record already is only counted as a repeat."""

    def __init__(self, options: RecordOptions, letters: Sequence[DeadLetter]) -> None:
        self._options, self._letters = options, letters
        self._arrivals = Counter(letter.key for letter in letters)
        self._known: Collection[str] = ()
        self._recorded: Sequence[Entry] = ()

    async def _find_fresh(self, tx: Transaction) -> list[DeadLetter]:
        self._known = await records_sql.count_repeats(tx, self._arrivals)
        return first_of_each(self._letters, self._known)

    async def _store(self, tx: Transaction, entries: Sequence[Entry]) -> None:
        options = self._options
        self._recorded = await records_sql.record_letters(
            tx, entries, replica=options.replica, is_shadow=options.is_shadow
        )
        arrivals = self._arrivals
        more = {key: arrivals[key] - 1 for one in self._recorded if arrivals[key := one.letter.key] > 1}
        if more:
            await records_sql.count_repeats(tx, more)

    async def count(self, tx: Transaction) -> None:
        repeats = {key: self._arrivals[key] for key in self._known}
        await count_arrivals(tx, self._recorded, repeats, names=self._options.names)


class LetterBatch(_Batch):
    def __init__(self, recorder: LetterRecorder, letters: Sequence[DeadLetter]) -> None:
        super().__init__(recorder.options, letters)
        self._recorder = recorder
        self._proposals: Sequence[LetterProposal] = ()
        self.execution_ids = {
            letter.execution_id
            for letter in letters
            if letter.execution_id is not None and needs_execution(letter, recorder.options.names)
        }

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[LetterProposal]:
        fresh = await self._find_fresh(tx)
        if view.locked_elsewhere:
            self.postponed = frozenset(
                letter.key for letter in fresh if letter.execution_id in view.locked_elsewhere
            )
            fresh = [letter for letter in fresh if letter.key not in self.postponed]
        self._proposals = await self._recorder.propose(tx, fresh, view)
        self._recorder.gate.consider(executions_found(self._proposals))
        return self._proposals

    async def record(self, tx: Transaction, applied: Applied) -> Sequence[Entry]:
        fitting = self._proposals
        if applied.left_out:
            fitting = [one for one in fitting if one.key not in applied.left_out]
        entries = entries_of(fitting, ended=applied.ended, now=applied.now)
        await self._store(tx, entries)
        return entries

    def observe(self, *, postponed: int, seconds: float) -> None:
        metrics = self._recorder.metrics
        metrics.observe_batch(len(self._letters), postponed, seconds)
        metrics.dead_letter_repeats.inc(len(self._letters) - len(self._proposals) - len(self.postponed))


class DeferredBatch(_Batch):
    def __init__(self, recorder: DeferringRecorder, letters: Sequence[DeadLetter]) -> None:
        super().__init__(recorder.options, letters)
        self._least = recorder.after_deliveries
        self._fresh: Sequence[DeadLetter] = ()

    async def decide(self, tx: Transaction, _: LockedView) -> Sequence[LetterProposal]:
        self._fresh = await self._find_fresh(tx)
        return ()

    async def record(self, tx: Transaction, applied: Applied) -> Sequence[Entry]:
        entries = [
            deferred(letter, deliveries=max(letter.deliveries, self._least), now=applied.now)
            for letter in self._fresh
        ]
        await self._store(tx, entries)
        return entries
