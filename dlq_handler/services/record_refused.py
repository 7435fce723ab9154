"""Record a dead letter that cannot be processed because of its content, with less of it each time that is refused too.

Promises: the last record holds nothing that a sender chose but bytes, so the content of no dead letter makes it fail.
Never: acknowledges a dead letter, or touches an execution.
"""

from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from dlq_handler.domain.dead_letter import DeadLetter
from dlq_handler.domain.letter_record import Entry, bare_entry, update_failed
from dlq_handler.domain.worker import WorkerQueueNames
from dlq_handler.errors import RowRejected, Unavailable
from dlq_handler.store import dead_letters
from dlq_handler.store.engine import Database
from dlq_handler.store.letter_groups import count_letters
from dlq_handler.store.transaction import Transaction

log = structlog.get_logger()

# What the content of one dead letter can raise: a refusal of the database, or an error of the code that handles values
# it was not written for. Neither may stop the other dead letters.
CONTENT_ERRORS = (
    RowRejected,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecorder:
    database: Database
    instance: str
    names: WorkerQueueNames
    is_shadow: bool

    async def record(self, letter: DeadLetter, error: Exception) -> tuple[Entry, datetime]:
        """Returns the entry on record and the database's time. Raises `Unavailable` or `Contended`."""
        text = text_of(error)
        log.error(
            "dead_letter.refused", execution_id=letter.execution_id, message_id=letter.message_id, error=text
        )
        for record in (self._whole, self._without_details, self._bare):
            try:
                async with self.database.transaction() as tx:
                    now = (await dead_letters.lock_executions(tx, ())).now
                    return await record(tx, letter, text, now), now
            except CONTENT_ERRORS as again:
                text = text_of(again)
        # The last record holds nothing that a sender chose: the dead letter is not at fault.
        raise Unavailable("database", f"no dead letter can be recorded: {text}")

    async def _whole(self, tx: Transaction, letter: DeadLetter, error: str, now: datetime) -> Entry:
        entry = update_failed(letter, error, tries=1, now=now)
        recorded = await dead_letters.record_letters(
            tx, [entry], instance=self.instance, is_shadow=self.is_shadow
        )
        if not self.is_shadow:
            await count_letters(tx, recorded, names=self.names)
        return entry

    async def _without_details(self, tx: Transaction, letter: DeadLetter, error: str, now: datetime) -> Entry:
        """Without category, headers and evidence: senders can put anything into these."""
        entry = update_failed(replace(letter, headers="{}"), error, tries=1, now=now)
        await dead_letters.record_letters(
            tx, [entry], instance=self.instance, is_shadow=self.is_shadow, has_group=False
        )
        return entry

    async def _bare(self, tx: Transaction, letter: DeadLetter, error: str, _: datetime) -> Entry:
        entry = bare_entry(letter, error)
        await dead_letters.record_bare(tx, entry, instance=self.instance, is_shadow=self.is_shadow)
        return entry


def text_of(error: Exception) -> str:
    """An error of the code may quote what the sender wrote: its type is enough."""
    return str(error) if isinstance(error, RowRejected) else f"cannot be processed: {type(error).__name__}"
