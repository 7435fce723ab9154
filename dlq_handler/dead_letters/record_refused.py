"""Record a dead letter that cannot be processed because of its content, with less of it each time that is refused too.

Promises: the last record holds nothing that a sender chose but bytes, so the content of no dead letter makes it fail.
Never: acknowledges a dead letter, or touches an execution.
"""

import traceback
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import structlog

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters import batch_sql
from dlq_handler.dead_letters.groups_sql import count_letters
from dlq_handler.dead_letters.letter import DISPATCH_MESSAGE_TYPE, DeadLetter, without_texts
from dlq_handler.dead_letters.record import OWN_ERROR, REFUSED, Entry, bare_entry, update_failed
from dlq_handler.errors import RowRejected, Unavailable
from dlq_handler.host import executions_sql
from dlq_handler.host.worker import WorkerQueueNames

log = structlog.get_logger()

STACK_FRAMES = 20

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
    replica: str
    names: WorkerQueueNames
    is_shadow: bool

    async def record(self, letter: DeadLetter, error: Exception) -> tuple[Entry, datetime]:
        """Returns the entry on record and the database's time. Raises `Unavailable` or `Contended`."""
        text, explanation = text_of(error), why_of(error)
        log.error(
            "dead_letter.refused",
            execution_id=letter.execution_id,
            message_id=letter.message_id,
            error=text,
            frames=frames_of(error),
        )
        for record in (self._whole, self._without_details, self._without_texts, self._bare):
            try:
                async with self.database.transaction() as tx:
                    now = (await executions_sql.lock_executions(tx, ())).now
                    return await record(tx, letter, text, explanation, now), now
            except CONTENT_ERRORS as again:
                text, explanation = text_of(again), why_of(again)
        # The last record holds nothing that a sender chose: the dead letter is not at fault.
        raise Unavailable("database", f"no dead letter can be recorded: {text}")

    async def _whole(
        self, tx: Transaction, letter: DeadLetter, error: str, explanation: str, now: datetime
    ) -> Entry:
        entry = update_failed(letter, error, attempts=1, now=now, explanation=explanation)
        recorded = await batch_sql.record_letters(tx, [entry], replica=self.replica, is_shadow=self.is_shadow)
        if not self.is_shadow:
            await count_letters(tx, recorded, names=self.names)
        return entry

    async def _without_details(
        self, tx: Transaction, letter: DeadLetter, error: str, explanation: str, now: datetime
    ) -> Entry:
        """Without category, headers and evidence: senders can put anything into these."""
        return await self._update_failed(tx, replace(letter, headers="{}"), error, explanation, now)

    async def _without_texts(
        self, tx: Transaction, letter: DeadLetter, error: str, explanation: str, now: datetime
    ) -> Entry:
        """A dispatch keeps its numbers and is tried again: the execution waits for it."""
        if letter.execution_id is None or letter.message_type != DISPATCH_MESSAGE_TYPE:
            return await self._bare(tx, letter, error, explanation, now)
        return await self._update_failed(tx, without_texts(letter, self.names), error, explanation, now)

    async def _update_failed(
        self, tx: Transaction, letter: DeadLetter, error: str, explanation: str, now: datetime
    ) -> Entry:
        entry = update_failed(letter, error, attempts=1, now=now, explanation=explanation)
        await batch_sql.record_letters(
            tx, [entry], replica=self.replica, is_shadow=self.is_shadow, has_group=False
        )
        return entry

    async def _bare(self, tx: Transaction, letter: DeadLetter, error: str, _: str, __: datetime) -> Entry:
        entry = bare_entry(letter, error)
        await batch_sql.record_bare(tx, entry, replica=self.replica, is_shadow=self.is_shadow)
        return entry


def text_of(error: Exception) -> str:
    """An error of the code may quote what the sender wrote: its type is enough."""
    return str(error) if isinstance(error, RowRejected) else f"cannot be processed: {type(error).__name__}"


def why_of(error: Exception) -> str:
    return REFUSED if isinstance(error, RowRejected) else OWN_ERROR


def frames_of(error: Exception) -> list[str] | None:
    """Files and lines of an error of the code, without its message. None for a refusal of the database."""
    if isinstance(error, RowRejected):
        return None
    frames = traceback.extract_tb(error.__traceback__)[-STACK_FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
