"""Decide kept dead letters: those that were refused or deferred, when they are due; others when an operator asks.

The same rules, the same transaction and the same announcement as for a fresh letter, brake and gate included; only the
record is replaced instead of added.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql
from dlq_handler.dead_letters.commit import LetterDecider
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.groups_sql import count_reprocessed
from dlq_handler.dead_letters.record import ClaimedLetter, Entry, update_failed
from dlq_handler.dead_letters.record_refused import CONTENT_ERRORS, text_of, why_of
from dlq_handler.endings.relay import OutboxRelay
from dlq_handler.errors import Contended, TooSlow
from dlq_handler.loop import every
from dlq_handler.metrics import Metrics

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
        decide: LetterDecider,
        relay: OutboxRelay | None,
        *,
        metrics: Metrics,
        interval_seconds: float = 5.0,
    ) -> None:
        """Without a relay (the command line) notices are written unleased, and a running sidecar publishes them."""
        self._database, self._decide, self._relay, self._metrics = database, decide, relay, metrics
        self._interval_seconds = interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="reprocessor")

    async def tick(self) -> None:
        """Take up what is due. One dead letter a transaction: these were refused before, or took too long."""
        for record_id in await records_sql.due_for_reprocess(self._database):
            await self.reprocess(record_id)

    async def reprocess(self, record_id: int) -> Reprocessed | None:
        """None when the record is gone, resolved meanwhile, its execution is locked, or the brake has no room for it:
        there will be another time.
        """
        self._decide.gate.check()
        try:
            try:
                reprocessed = await self._again(record_id)
            except CONTENT_ERRORS as error:
                # One record that cannot be decided must not keep the others from it.
                reprocessed = await self._refuse_again(record_id, error)
            except TooSlow:
                # The others that are due must not wait for this one.
                await records_sql.postpone(self._database, record_id)
                raise
        except Contended as error:
            log.info("reprocess.put_off", record_id=record_id, error=str(error))
            return None
        if reprocessed is not None:
            self._metrics.dead_letters_reprocessd.labels(reprocessed.outcome).inc()
            log.info(
                "dead_letter.reprocessed",
                record_id=record_id,
                execution_id=reprocessed.execution_id,
                before=reprocessed.before.value,
                outcome=reprocessed.outcome.value,
                explanation=reprocessed.explanation,
            )
        return reprocessed

    async def _again(self, record_id: int) -> Reprocessed | None:
        leased_at = monotonic_seconds()
        async with self._database.transaction() as tx:
            room = await self._decide.room(tx)
            claimed = await records_sql.claim(tx, record_id)
            if claimed is None:
                return None
            view = await self._decide.look(tx, [claimed.letter])
            if claimed.letter.execution_id in view.locked_elsewhere:
                return None
            rulings = await self._decide.rule(tx, [claimed.letter], view)
            written = await self._decide.write(
                tx, rulings, view.now, room=room, attempts_before=claimed.attempts
            )
            if written.left_out:
                await self._decide.note(tx, written)
                return None
            [entry] = written.entries
            if entry.outcome is Outcome.LEFT_TO_MONITOR and not self._decide.gate.knows_workers:
                entry = _put_off(claimed, entry, view.now)
            await records_sql.replace_outcome(tx, record_id, entry)
            await count_reprocessed(tx, record_id, entry)
        if self._relay is not None:
            self._relay.offer(written.notices, leased_at=leased_at)
        return _reprocessed(claimed, entry)

    async def _refuse_again(self, record_id: int, error: Exception) -> Reprocessed | None:
        async with self._database.transaction() as tx:
            claimed = await records_sql.claim(tx, record_id)
            if claimed is None:
                return None
            view = await self._decide.look(tx, [])
            entry = update_failed(
                claimed.letter,
                text_of(error),
                attempts=claimed.attempts + 1,
                now=view.now,
                explanation=why_of(error),
            )
            await records_sql.replace_outcome(tx, record_id, entry)
        return _reprocessed(claimed, entry)


def _put_off(claimed: ClaimedLetter, entry: Entry, now: datetime) -> Entry:
    """Not a decision but our ignorance: a link this young cannot tell a dead worker from a live one.

    As `left_to_monitor` the letter would be resolved for good. So it keeps its outcome and is due at once: the sidecar,
    which has watched for longer than a command can, looks again.
    """
    return Entry(
        letter=claimed.letter,
        outcome=claimed.outcome,
        explanation=f"put off: {entry.explanation}; our link to the database is too young to know",
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
