"""Reprocessing: queue dead letters on record for it, claim those that are due, replace their outcome.

Queued means due: the next replica that scans reprocesses them, under its safety gate and brake. So an operation is one
statement, in the transaction of its audit entry, and nothing is lost when the operator's program ends.

Promises: the cost of an operation does not grow with a group. One operation reaches `MOST_QUEUED` dead letters of it:
first those that are not queued, of them the ones decided longest ago, so that repeated operations reach all of them.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.postgres_values import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.dead_letters.letter import DeadLetter, Death
from dlq_handler.dead_letters.listing import CappedCount, GroupState, LetterState
from dlq_handler.dead_letters.record import ClaimedLetter, Entry, KeptLetter
from dlq_handler.dead_letters.records_sql import COMPLETE
from dlq_handler.endings.recording import retry_delay
from dlq_handler.text import storable

# By one operation: a bound on the ids in memory and in its transaction. Replicas take minutes for this many anyway.
MOST_QUEUED = 10_000

# As in the index `letter_kept_idx`: with a parameter the planner would not use that index.
REPROCESSABLE_OUTCOMES = (
    f"outcome IN ({', '.join(repr(outcome.value) for outcome in sorted(REPROCESSABLE))}) AND NOT is_shadow"
)

_STATE = "id, outcome, attempts, decided_at, next_attempt_at, is_shadow"
_NAMED = f"SELECT {_STATE} FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[]))"  # noqa: S608  # own constants; values are bound
_REACHED = f"""
    SELECT {_STATE} FROM own.letter WHERE group_id = :group_id AND {REPROCESSABLE_OUTCOMES}
     ORDER BY next_attempt_at NULLS FIRST, decided_at, id LIMIT :most"""  # noqa: S608  # own constants; values are bound
# A sum, so that their order does not matter. Times as numbers: as texts they would depend on the session's time zone.
_DIGEST = """
    count(*) || ' ' || coalesce(sum(hashtextextended(concat_ws(' ', id, outcome, attempts,
            extract(epoch FROM decided_at), extract(epoch FROM next_attempt_at)), 0)), 0)"""


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
        SELECT {COMPLETE}, death_count, parse_error FROM own.letter
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


async def lock_letters(tx: Transaction, letter_ids: Collection[int]) -> list[LetterState]:
    """Those that are on record, locked until the transaction ends."""
    rows = await tx.rows(f"{_NAMED} ORDER BY id FOR NO KEY UPDATE", ids=list(letter_ids))
    return [_state(row) for row in rows]


async def states_of(tx: Transaction, letter_ids: Collection[int]) -> list[LetterState]:
    """Those that are on record, without a lock."""
    rows = await tx.rows(_NAMED, ids=list(letter_ids))
    return [_state(row) for row in rows]


async def queue_reprocessing(tx: Transaction, letter_ids: Collection[int]) -> list[int]:
    """Returns the ids of those queued. Resolved ones and records of shadow mode are left as they are."""
    rows = await tx.rows(
        f"""
        UPDATE own.letter SET next_attempt_at = clock_timestamp()
         WHERE id = ANY (CAST(:ids AS bigint[])) AND {REPROCESSABLE_OUTCOMES}
        RETURNING id
        """,  # noqa: S608  # own constants; values are bound
        ids=list(letter_ids),
    )
    return sorted(row.id for row in rows)


async def read_group_state(tx: Transaction, group_id: str) -> GroupState:
    """The dead letters that one operation would queue, without a lock."""
    [row] = await tx.rows(
        f"""
        SELECT {_DIGEST} AS digest, count(*) AS letters,
               EXISTS ({_REACHED.replace(":most", "1 OFFSET :most")}) AS is_capped
          FROM ({_REACHED}) AS reached
        """,  # noqa: S608  # own constants; values are bound
        group_id=group_id,
        most=MOST_QUEUED,
    )
    return GroupState(letters=CappedCount(count=row.letters, is_capped=row.is_capped), digest=row.digest)


async def lock_group(tx: Transaction, group_id: str) -> list[int]:
    """The dead letters that one operation queues, locked until the transaction ends."""
    # Locked in the order of ids: in the order of the search two operations could wait for each other. The condition
    # stands twice: the transaction that held the lock until now may have decided the dead letter.
    rows = await tx.rows(
        f"""
        SELECT id FROM own.letter
         WHERE id = ANY (ARRAY(SELECT id FROM ({_REACHED}) AS reached)) AND {REPROCESSABLE_OUTCOMES}
         ORDER BY id FOR NO KEY UPDATE
        """,  # noqa: S608  # own constants; values are bound
        group_id=group_id,
        most=MOST_QUEUED,
    )
    return [row.id for row in rows]


async def digest_of(tx: Transaction, letter_ids: Collection[int]) -> str:
    """Equal to the digest of `read_group_state` if these dead letters have not changed since."""
    [row] = await tx.rows(
        f"SELECT {_DIGEST} AS digest FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[]))",  # noqa: S608  # own constants; values are bound
        ids=list(letter_ids),
    )
    digest: str = row.digest
    return digest


async def left_in_group(tx: Transaction, group_id: str) -> CappedCount:
    """Kept dead letters of the group that are not queued and not due for another attempt."""
    [row] = await tx.rows(
        f"""
        SELECT count(*) AS letters
          FROM (SELECT id FROM own.letter
                 WHERE group_id = :group_id AND next_attempt_at IS NULL AND {REPROCESSABLE_OUTCOMES}
                 LIMIT :most) AS some_of
        """,  # noqa: S608  # own constants; values are bound
        group_id=group_id,
        most=MOST_QUEUED + 1,
    )
    return CappedCount(count=min(row.letters, MOST_QUEUED), is_capped=row.letters > MOST_QUEUED)


async def raw_body(tx: Transaction, letter_id: int) -> bytes | None:
    """None: no such record."""
    row = await tx.row("SELECT body FROM own.letter WHERE id = :id", id=letter_id)
    return None if row is None else bytes(row.body)


def _state(row: Row[Any]) -> LetterState:
    return LetterState(**row._asdict() | {"outcome": Outcome(row.outcome)})


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
