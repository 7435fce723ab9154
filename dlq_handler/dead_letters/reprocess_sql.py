"""Queue dead letters for reprocessing, and read the raw body of one.

Queued means due: the next replica that looks reprocesses them, under its safety gate and brake. So an operation is one
statement, in the transaction of its audit entry, and nothing is lost when the operator's program ends.

Promises: the cost of an operation does not grow with a group. One operation reaches `MOST_QUEUED` dead letters of it:
first those that are not queued, of them the ones decided longest ago, so that repeated operations reach all of them.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.filter import CappedCount
from dlq_handler.dead_letters.records_sql import MOST_QUEUED, REPROCESSABLE_OUTCOMES
from dlq_handler.dead_letters.state_version import GroupState, LetterState

_STATE = "id, outcome, attempts, decided_at, next_attempt_at, is_shadow"
_NAMED = f"SELECT {_STATE} FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[]))"  # noqa: S608  # constants of ours; values are bound
_REACHED = f"""
    SELECT {_STATE} FROM own.letter WHERE group_id = :group_id AND {REPROCESSABLE_OUTCOMES}
     ORDER BY next_attempt_at NULLS FIRST, decided_at, id LIMIT :most"""  # noqa: S608  # constants of ours; values are bound
# A sum, so that their order does not matter. Times as numbers: as texts they would depend on the session's time zone.
_DIGEST = """
    count(*) || ' ' || coalesce(sum(hashtextextended(concat_ws(' ', id, outcome, attempts,
            extract(epoch FROM decided_at), extract(epoch FROM next_attempt_at)), 0)), 0)"""


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
        """,  # noqa: S608  # constants of ours; values are bound
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
        """,  # noqa: S608  # constants of ours; values are bound
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
        """,  # noqa: S608  # constants of ours; values are bound
        group_id=group_id,
        most=MOST_QUEUED,
    )
    return [row.id for row in rows]


async def digest_of(tx: Transaction, letter_ids: Collection[int]) -> str:
    """Equal to the digest of `read_group_state` if these dead letters have not changed since."""
    [row] = await tx.rows(
        f"SELECT {_DIGEST} AS digest FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[]))",  # noqa: S608  # constants of ours; values are bound
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
        """,  # noqa: S608  # constants of ours; values are bound
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
