"""Judge kept letters again: those the database refused, when they are due; others when an operator asks.

The same rules, the same transaction and the same announcement as for a fresh letter; only the record is replaced
instead of added.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.letter_record import ClaimedLetter, Entry, update_failed
from dlq_handler.domain.verdict import REJUDGEABLE, Outcome
from dlq_handler.errors import Contended, RowRejected
from dlq_handler.services.every import every
from dlq_handler.services.judge_letters import LetterJudge
from dlq_handler.services.outbox_relay import OutboxRelay
from dlq_handler.store import letters
from dlq_handler.store.engine import Database

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    record_id: int
    execution_id: int | None
    before: Outcome
    outcome: Outcome
    why: str


class Rejudger:
    def __init__(
        self,
        database: Database,
        judge: LetterJudge,
        relay: OutboxRelay | None,
        *,
        interval_seconds: float = 5.0,
    ) -> None:
        """Without a relay (the command line) notices are written unleased, and a running sidecar publishes them."""
        self._database, self._judge, self._relay = database, judge, relay
        self._interval_seconds = interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self.tick, stop, name="rejudger")

    async def tick(self) -> None:
        """Take up what is due. One letter a transaction: these are the ones that were refused before."""
        for record_id in await letters.due_for_rejudge(self._database):
            await self.rejudge(record_id)

    async def rejudge_all(self, outcomes: Collection[Outcome] = REJUDGEABLE) -> list[Rejudged]:
        """Every kept letter with one of these outcomes, due or not."""
        ids = await letters.rejudgeable(self._database, outcomes)
        judged = [await self.rejudge(record_id) for record_id in ids]
        return [one for one in judged if one is not None]

    async def rejudge(self, record_id: int) -> Rejudged | None:
        """None when the record is gone, resolved meanwhile, or its execution is locked: there will be another time."""
        try:
            return await self._again(record_id)
        except RowRejected as error:
            return await self._refuse_again(record_id, error)
        except Contended as error:
            log.info("rejudge.put_off", record_id=record_id, error=str(error))
            return None

    async def _again(self, record_id: int) -> Rejudged | None:
        leased_at = monotonic_seconds()
        async with self._database.transaction() as tx:
            claimed = await letters.claim(tx, record_id)
            if claimed is None:
                return None
            view = await self._judge.look(tx, [claimed.letter])
            if claimed.letter.execution_id in view.locked_elsewhere:
                return None
            rulings = await self._judge.rule(tx, [claimed.letter], view)
            [entry], notices = await self._judge.write(tx, rulings, view.now, tries_before=claimed.tries)
            await letters.replace_outcome(tx, record_id, entry)
        if self._relay is not None:
            self._relay.offer(notices, leased_at=leased_at)
        self._judge.tell([entry], view.now)
        return _rejudged(claimed, entry)

    async def _refuse_again(self, record_id: int, error: RowRejected) -> Rejudged | None:
        async with self._database.transaction() as tx:
            claimed = await letters.claim(tx, record_id)
            if claimed is None:
                return None
            view = await self._judge.look(tx, [])
            entry = update_failed(claimed.letter, str(error), tries=claimed.tries + 1, now=view.now)
            await letters.replace_outcome(tx, record_id, entry)
        return _rejudged(claimed, entry)


def _rejudged(claimed: ClaimedLetter, entry: Entry) -> Rejudged:
    return Rejudged(
        record_id=claimed.record_id,
        execution_id=claimed.letter.execution_id,
        before=claimed.outcome,
        outcome=entry.outcome,
        why=entry.why,
    )
