"""Records of dead letters: read, claimed for reprocessing, replaced, and deleted by retention."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn, always, delete_in_batches
from dlq_handler.database.jsonb import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.decision import REPROCESSABLE, UNRESOLVED, Outcome
from dlq_handler.dead_letters.letter import DeadLetter, Death
from dlq_handler.dead_letters.masked_rows_sql import for_people
from dlq_handler.dead_letters.record import ClaimedLetter, Entry, KeptLetter, LetterRecord
from dlq_handler.endings.refusal import retry_delay
from dlq_handler.host.names import REQUESTED_KEY
from dlq_handler.text import storable

# By one operation: a bound on the ids in memory and in its transaction. Replicas take minutes for this many anyway.
MOST_QUEUED = 10_000

# As in the index `letter_kept_idx`: with a parameter the planner would not use that index.
REPROCESSABLE_OUTCOMES = (
    f"outcome IN ({', '.join(repr(outcome.value) for outcome in sorted(REPROCESSABLE))}) AND NOT is_shadow"
)

Contents = tuple[bytes, Mapping[str, object]]

_FIELDS = frozenset(field.name for field in fields(LetterRecord))

# The columns of a list: without bodies and headers.
LISTED = """
    id, key, message_id, correlation_id, message_type, execution_id, worker_id, action_ref, queue, reason, died_at,
    first_death_queue, exchange, routing_key, attempt_updated_at, outcome, explanation, error, attempts,
    next_attempt_at, repeats, repeated_at, received_at, decided_at, replica, evidence, is_shadow, body_size,
    NULL AS body, group_id, NULL AS headers"""
_COMPLETE = LISTED.replace("NULL AS", "")


async def show(database: Database, record_id: int) -> LetterRecord | None:
    async with database.transaction() as tx:
        row = await tx.row(f"SELECT {_COMPLETE} FROM own.letter WHERE id = :id", id=record_id)  # noqa: S608  # constants
    return record_of(row) if row else None


async def of_execution(database: Database, execution_id: int) -> list[LetterRecord]:
    """Every dead letter of this execution, in the order of arrival."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            f"SELECT {_COMPLETE} FROM own.letter WHERE execution_id = :id ORDER BY id",  # noqa: S608  # constants
            id=execution_id,
        )
    return [record_of(row) for row in rows]


async def contents(database: Database, letter_ids: Collection[int]) -> dict[int, Contents]:
    """Body and headers by record. One that retention deleted meanwhile is missing."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            "SELECT id, body, headers FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[]))",
            ids=list(letter_ids),
        )
    return {row.id: (row.body or b"", row.headers or {}) for row in rows}


async def due_for_reprocess(database: Database, *, limit: int = 100) -> list[KeptLetter]:
    """Kept records whose pause is over, the longest waiting first: refused by the database, or deferred."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT id, execution_id FROM own.letter
             WHERE outcome = ANY (CAST(:outcomes AS text[])) AND next_attempt_at <= statement_timestamp()
               AND NOT is_shadow
             ORDER BY next_attempt_at, id LIMIT :limit
            """,
            outcomes=[outcome.value for outcome in REPROCESSABLE],
            limit=limit,
        )
    return [KeptLetter(record_id=row.id, execution_id=row.execution_id) for row in rows]


async def find_kept(database: Database, record_id: int) -> KeptLetter | None:
    """None: there is no such record. Whether it may be reprocessed is decided under its lock (`claim`)."""
    async with database.transaction() as tx:
        row = await tx.row("SELECT execution_id FROM own.letter WHERE id = :id", id=record_id)
    return None if row is None else KeptLetter(record_id=record_id, execution_id=row.execution_id)


async def reprocessable(
    database: Database, outcomes: Collection[Outcome] = REPROCESSABLE, *, limit: int = MOST_QUEUED
) -> list[int]:
    """Records with one of these outcomes that may be reprocessed. First those that are not queued for it, and of them
    the ones decided longest ago, so that repeated calls reach all of them.
    """
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT id FROM own.letter
             WHERE outcome = ANY (CAST(:outcomes AS text[])) AND NOT is_shadow
             ORDER BY next_attempt_at NULLS FIRST, decided_at, id LIMIT :limit
            """,
            outcomes=[outcome.value for outcome in outcomes if outcome in REPROCESSABLE],
            limit=limit,
        )
    return [row.id for row in rows]


async def claim(tx: Transaction, record_id: int) -> ClaimedLetter | None:
    """Lock one record to decide it again. None: it was deleted or resolved meanwhile, or another transaction has it.

    A record of shadow mode is never reprocessed: the dead letter itself went another way.
    """
    row = await tx.row(
        f"""
        SELECT {_COMPLETE}, death_count, parse_error FROM own.letter
         WHERE id = :id AND outcome = ANY (CAST(:outcomes AS text[])) AND NOT is_shadow
           FOR NO KEY UPDATE SKIP LOCKED
        """,  # noqa: S608  # constants
        id=record_id,
        outcomes=[outcome.value for outcome in REPROCESSABLE],
    )
    if row is None:
        return None
    return ClaimedLetter(
        record_id=row.id, outcome=Outcome(row.outcome), attempts=row.attempts, letter=_letter(row)
    )


async def postpone(tx: Transaction, record_id: int) -> None:
    """Leave a record as it is until a later attempt, with a pause that doubles."""
    claimed = await claim(tx, record_id)
    if claimed is None:
        return
    attempts = claimed.attempts + 1
    await tx.run(
        """
        UPDATE own.letter
           SET attempts = :attempts, next_attempt_at = clock_timestamp() + make_interval(secs => :pause)
         WHERE id = :id
        """,
        id=record_id,
        attempts=attempts,
        pause=retry_delay(attempts).total_seconds(),
    )


async def replace_outcome(tx: Transaction, record_id: int, entry: Entry) -> None:
    """Replace the decision on record."""
    await tx.run(
        """
        UPDATE own.letter
           SET outcome = :outcome, explanation = :explanation, error = :error, attempts = :attempts,
               next_attempt_at = :next_attempt_at, evidence = CAST(:evidence AS jsonb), decided_at = clock_timestamp()
         WHERE id = :id
        """,
        id=record_id,
        outcome=entry.outcome.value,
        explanation=storable(entry.explanation),
        error=None if entry.error is None else storable(entry.error),
        attempts=entry.attempts,
        next_attempt_at=entry.next_attempt_at,
        evidence=as_jsonb(entry.evidence),
    )


async def delete_resolved(
    database: Database, *, older_than_seconds: float, may_go_on: MayGoOn = always
) -> int:
    """Delete old dead letters that need no attention anymore. Returns their number."""
    resolved = [outcome.value for outcome in Outcome if outcome.is_resolved]
    # By the time of the decision too: a dead letter that was resolved just now stays readable.
    return await _delete(database, resolved, older_than_seconds, by_decision=True, may_go_on=may_go_on)


async def delete_unresolved(
    database: Database, *, older_than_seconds: float, may_go_on: MayGoOn = always
) -> int:
    """Delete dead letters that are older than this and still unresolved. Returns their number."""
    unresolved = [outcome.value for outcome in UNRESOLVED]
    return await _delete(database, unresolved, older_than_seconds, by_decision=False, may_go_on=may_go_on)


async def _delete(
    database: Database,
    outcomes: Sequence[str],
    older_than_seconds: float,
    *,
    by_decision: bool,
    may_go_on: MayGoOn,
) -> int:
    return await delete_in_batches(
        database,
        "letter",
        f"""
        received_at < now() - make_interval(secs => :age)
        AND (repeated_at IS NULL OR repeated_at < now() - make_interval(secs => :age)
             OR NOT (routing_key = '{REQUESTED_KEY}' AND reason = 'rejected'))
        AND (decided_at < now() - make_interval(secs => :age) OR NOT :by_decision)
        AND outcome = ANY (CAST(:outcomes AS text[]))
        """,
        until="received_at >= now() - make_interval(secs => :age)",
        may_go_on=may_go_on,
        age=float(older_than_seconds),
        by_decision=by_decision,
        outcomes=list(outcomes),
    )


def record_of(row: Row[Any]) -> LetterRecord:
    shown = {name: value for name, value in for_people(row).items() if name in _FIELDS}
    return LetterRecord(**shown | {"outcome": Outcome(row.outcome)})


def _letter(row: Row[Any]) -> DeadLetter:
    death = None
    if row.death_count is not None:
        death = Death(queue=row.queue, reason=row.reason, time=row.died_at, count=row.death_count)
    return DeadLetter(
        key=row.key,
        message_id=row.message_id,
        correlation_id=row.correlation_id,
        message_type=row.message_type,
        execution_id=row.execution_id,
        worker_id=row.worker_id,
        attempt_updated_at=row.attempt_updated_at,
        death=death,
        first_death_queue=row.first_death_queue,
        exchange=row.exchange,
        routing_key=row.routing_key,
        redelivered=False,
        body=row.body,
        body_size=row.body_size,
        action_ref=row.action_ref,
        parse_error=row.parse_error,
    )
