"""Record dead letters undecided when the broker is about to drop them: what is recorded cannot be lost.

A quorum queue drops a message after its delivery limit. So a dead letter that was delivered often, and never decided,
is recorded as `deferred` and acknowledged; the loop for kept records decides it.

Promises: after `record` returns, every dead letter that it was given is on record. Only tables of dlq-handler are
written, so this works where triggers of the host make a decision too slow. Never: acknowledges or decides anything.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.clock_sql import database_time
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import batch_sql
from dlq_handler.dead_letters.decide_batch import first_of_each
from dlq_handler.dead_letters.groups_sql import count_letters
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.log import tell_of_letters
from dlq_handler.dead_letters.record import Entry, deferred
from dlq_handler.dead_letters.record_refused import CONTENT_ERRORS, RefusedRecorder
from dlq_handler.errors import TooSlow
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferPolicy:
    after_deliveries: int
    replica: str
    names: WorkerQueueNames


class LetterDeferrer:
    def __init__(self, database: Database, policy: DeferPolicy, *, metrics: Metrics) -> None:
        self._database, self._policy, self._metrics = database, policy, metrics
        self._refused = RefusedRecorder(
            database=database, replica=policy.replica, names=policy.names, is_shadow=False
        )

    def is_due(self, letter: DeadLetter, *, own_count: int = 0) -> bool:
        """`own_count`: deliveries that this process counted, for queues that count none."""
        return max(letter.deliveries, own_count) >= self._policy.after_deliveries

    async def record(self, letters: Sequence[DeadLetter]) -> None:
        """Raises `Unavailable` or `Contended`: then calling again is safe."""
        try:
            entries, now = await self._record_together(letters)
        except TooSlow:
            if len(letters) == 1:
                raise
        except CONTENT_ERRORS as error:
            if len(letters) == 1:
                entry, now = await self._refused.record(letters[0], error)
                tell_of_letters([entry], now, self._metrics)
                return
        else:
            tell_of_letters(entries, now, self._metrics)
            return
        middle = len(letters) // 2
        await self.record(letters[:middle])
        await self.record(letters[middle:])

    async def _record_together(self, letters: Sequence[DeadLetter]) -> tuple[list[Entry], datetime]:
        least = self._policy.after_deliveries
        async with self._database.transaction() as tx:
            now = await database_time(tx)
            arrivals = Counter(letter.key for letter in letters)
            known = await batch_sql.count_repeats(tx, arrivals)
            entries = [
                deferred(letter, deliveries=max(letter.deliveries, least), now=now)
                for letter in first_of_each(letters, known)
            ]
            recorded = await batch_sql.record_letters(tx, entries, replica=self._policy.replica)
            more = {key: arrivals[key] - 1 for entry in recorded if arrivals[key := entry.letter.key] > 1}
            if more:
                await batch_sql.count_repeats(tx, more)
            await count_letters(tx, recorded, names=self._policy.names)
        return entries, now
