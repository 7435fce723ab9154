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

from dlq_handler.domain.dead_letter import DeadLetter
from dlq_handler.domain.judge_batch import first_of_each
from dlq_handler.domain.letter_record import Entry, deferred
from dlq_handler.domain.worker import WorkerQueueNames
from dlq_handler.errors import TooSlow
from dlq_handler.services.letter_log import tell_of_letters
from dlq_handler.services.observer import Observer
from dlq_handler.services.record_refused import CONTENT_ERRORS, RefusedRecorder
from dlq_handler.store import dead_letters
from dlq_handler.store.engine import Database
from dlq_handler.store.letter_groups import count_letters


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferPolicy:
    after_deliveries: int
    instance: str
    names: WorkerQueueNames


class LetterDeferrer:
    def __init__(self, database: Database, policy: DeferPolicy, *, observer: Observer) -> None:
        self._database, self._policy, self._observer = database, policy, observer
        self._refused = RefusedRecorder(
            database=database, instance=policy.instance, names=policy.names, is_shadow=False
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
                tell_of_letters([entry], now, self._observer)
                return
        else:
            tell_of_letters(entries, now, self._observer)
            return
        middle = len(letters) // 2
        await self.record(letters[:middle])
        await self.record(letters[middle:])

    async def _record_together(self, letters: Sequence[DeadLetter]) -> tuple[list[Entry], datetime]:
        least = self._policy.after_deliveries
        async with self._database.transaction() as tx:
            now = await dead_letters.database_time(tx)
            arrivals = Counter(letter.key for letter in letters)
            known = await dead_letters.count_repeats(tx, arrivals)
            entries = [
                deferred(letter, deliveries=max(letter.deliveries, least), now=now)
                for letter in first_of_each(letters, known)
            ]
            recorded = await dead_letters.record_letters(tx, entries, instance=self._policy.instance)
            more = {key: arrivals[key] - 1 for entry in recorded if arrivals[key := entry.letter.key] > 1}
            if more:
                await dead_letters.count_repeats(tx, more)
            await count_letters(tx, recorded, names=self._policy.names)
        return entries, now
