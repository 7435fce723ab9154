"""Reprocess dead letters on record: those that were refused or deferred, when they are due; others when an operator
asks.

The rules, the transaction, the brake and the safety gate are those of a dead letter that has just arrived; only the
record is replaced instead of added.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters import reprocess_sql
from dlq_handler.dead_letters.decide import LetterProposal
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.groups_sql import count_reprocessed
from dlq_handler.dead_letters.record import ClaimedLetter, Entry, KeptLetter, entries_of, update_failed
from dlq_handler.dead_letters.recorder import LetterRecorder
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.recording import Applied, Batch, Recorder, Refusal, Step
from dlq_handler.endings.writers import Writer
from dlq_handler.errors import Contended
from dlq_handler.host.executions_sql import LockedView
from dlq_handler.loop import every

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reprocessed:
    record_id: int
    execution_id: int | None
    before: Outcome
    outcome: Outcome
    explanation: str


class Reprocessor:
    def __init__(
        self,
        database: Database,
        writer: Writer,
        letters: LetterRecorder,
        *,
        interval_seconds: float = 5.0,
    ) -> None:
        self._database, self._interval_seconds = database, interval_seconds
        # One dead letter in each transaction: these were refused before, or took too long.
        self._ender = Ender(database, writer, _ReprocessRecorder(letters), 1)

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="reprocessor")

    async def tick(self) -> None:
        """Reprocess what is due."""
        for kept in await reprocess_sql.due_for_reprocess(self._database):
            await self._reprocess(kept)

    async def reprocess(self, record_id: int) -> Reprocessed | None:
        """None: there is nothing to reprocess, its execution is locked, or the brake has no room for it. What is due
        is tried again.
        """
        kept = await reprocess_sql.find_kept(self._database, record_id)
        return None if kept is None else await self._reprocess(kept)

    async def _reprocess(self, kept: KeptLetter) -> Reprocessed | None:
        try:
            committed = await self._ender.commit([kept])
        except Contended as error:
            log.info("reprocessing.delayed", record_id=kept.record_id, error=str(error))
            return None
        return committed.records[0] if committed.records else None


class _ReprocessRecorder(Recorder[KeptLetter, Reprocessed]):
    subject = "kept dead letters"

    def __init__(self, letters: LetterRecorder) -> None:
        self._letters = letters

    @property
    def if_refused(self) -> Sequence[Step[KeptLetter, Reprocessed]]:
        return (_refuse_again,)

    @property
    def if_too_slow(self) -> Sequence[Step[KeptLetter, Reprocessed]]:
        # The others that are due must not wait for this one.
        return (_postpone,)

    def batch(self, items: Sequence[KeptLetter]) -> "_ReprocessBatch":
        [kept] = items
        return _ReprocessBatch(self._letters, kept)

    async def rehearse(self, tx: Transaction) -> None:
        await self._letters.rehearse(tx)

    def log(self, records: Sequence[Reprocessed], _: datetime) -> None:
        for one in records:
            self._letters.metrics.dead_letters_reprocessed.labels(one.outcome).inc()
            log.info(
                "dead_letter.reprocessed",
                record_id=one.record_id,
                execution_id=one.execution_id,
                before=one.before.value,
                outcome=one.outcome.value,
                explanation=one.explanation,
            )

    def log_refused(self, item: KeptLetter, refusal: Refusal) -> None:
        log.error(
            "dead_letter.refused",
            record_id=item.record_id,
            execution_id=item.execution_id,
            error=refusal.error,
            frames=refusal.frames,
        )


class _ReprocessBatch(Batch[Reprocessed]):
    def __init__(self, letters: LetterRecorder, kept: KeptLetter) -> None:
        self._letters, self._kept = letters, kept
        self._claimed: ClaimedLetter | None = None
        self._proposals: list[LetterProposal] = []
        self._entry: Entry | None = None
        self.execution_ids = () if kept.execution_id is None else (kept.execution_id,)

    async def decide(self, tx: Transaction, view: LockedView) -> Sequence[LetterProposal]:
        if view.locked_elsewhere:
            self.postponed = frozenset({self._kept.record_id})
            return ()
        self._claimed = await reprocess_sql.claim(tx, self._kept.record_id)
        if self._claimed is not None:
            self._proposals = await self._letters.propose(tx, [self._claimed.letter], view)
        return self._proposals

    async def record(self, tx: Transaction, applied: Applied) -> Sequence[Reprocessed]:
        claimed, now = self._claimed, applied.now
        if claimed is None or applied.left_out:
            return ()
        [entry] = entries_of(self._proposals, ended=applied.ended, now=now, attempts_before=claimed.attempts)
        if entry.outcome is Outcome.LEFT_TO_MONITOR and not self._letters.gate.knows_workers:
            entry = _still_undecided(claimed, entry, now)
        await reprocess_sql.replace_outcome(tx, claimed.record_id, entry)
        self._entry = entry
        return [_reprocessed(claimed, entry)]

    async def count(self, tx: Transaction) -> None:
        if self._entry is not None:
            await count_reprocessed(tx, self._kept.record_id, self._entry)


async def _refuse_again(
    tx: Transaction, kept: KeptLetter, refusal: Refusal, now: datetime
) -> Reprocessed | None:
    claimed = await reprocess_sql.claim(tx, kept.record_id)
    if claimed is None:
        return None
    entry = update_failed(claimed.letter, refusal, attempts=claimed.attempts + 1, now=now)
    await reprocess_sql.replace_outcome(tx, kept.record_id, entry)
    return _reprocessed(claimed, entry)


async def _postpone(tx: Transaction, kept: KeptLetter, _: Refusal, __: datetime) -> Reprocessed | None:
    await reprocess_sql.postpone(tx, kept.record_id)
    return None


def _still_undecided(claimed: ClaimedLetter, entry: Entry, now: datetime) -> Entry:
    """A connection this young cannot prove that a worker is unavailable.

    As `left_to_monitor` the dead letter would be resolved. So it keeps its outcome and is due at once: a running
    replica, which has been connected for longer than a command can be, decides it.
    """
    return Entry(
        letter=claimed.letter,
        outcome=claimed.outcome,
        explanation=f"postponed: {entry.explanation}; the connection to the database is too young to prove more",
        attempts=claimed.attempts,
        next_attempt_at=now,
    )


def _reprocessed(claimed: ClaimedLetter, entry: Entry) -> Reprocessed:
    return Reprocessed(
        record_id=claimed.record_id,
        execution_id=claimed.letter.execution_id,
        before=claimed.outcome,
        outcome=entry.outcome,
        explanation=entry.explanation,
    )
