"""Letters that an operator puts up to be reprocessed, and the raw body that one asks for.

Put up means due: whichever sidecar looks first takes it up, under its gate and brake. So the act is one statement, in
the transaction of its line in the audit, and nothing is lost when whoever asked is gone a moment later.

Promises: what an act and the look before it cost does not grow with a group. One act reaches `MOST_PUT_UP` letters of
it: first those that are not put up, of them the ones decided longest ago, so that acts in a row come to all of them.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.filter import CappedCount
from dlq_handler.dead_letters.records_sql import MOST_PUT_UP, REPROCESSABLE_OUTCOMES
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
    """Those that are on record, held until the transaction ends: what is decided of them stays true."""
    rows = await tx.rows(f"{_NAMED} ORDER BY id FOR NO KEY UPDATE", ids=list(letter_ids))
    return [_state(row) for row in rows]


async def states_of(tx: Transaction, letter_ids: Collection[int]) -> list[LetterState]:
    """Of those that are on record, as they are now, for whoever decides later."""
    rows = await tx.rows(_NAMED, ids=list(letter_ids))
    return [_state(row) for row in rows]


async def put_up(tx: Transaction, letter_ids: Collection[int]) -> list[int]:
    """The ids of those that were; settled letters and shadow records are left alone."""
    rows = await tx.rows(
        f"""
        UPDATE own.letter SET next_attempt_at = clock_timestamp()
         WHERE id = ANY (CAST(:ids AS bigint[])) AND {REPROCESSABLE_OUTCOMES}
        RETURNING id
        """,  # noqa: S608  # constants of ours; values are bound
        ids=list(letter_ids),
    )
    return sorted(row.id for row in rows)


async def can_be_put_up(tx: Transaction, group_id: str) -> GroupState:
    """By one act; as it is now, for whoever decides later."""
    [row] = await tx.rows(
        f"""
        SELECT {_DIGEST} AS digest, count(*) AS letters,
               EXISTS ({_REACHED.replace(":most", "1 OFFSET :most")}) AS is_capped
          FROM ({_REACHED}) AS reached
        """,  # noqa: S608  # constants of ours; values are bound
        group_id=group_id,
        most=MOST_PUT_UP,
    )
    return GroupState(letters=CappedCount(count=row.letters, is_capped=row.is_capped), digest=row.digest)


async def lock_group(tx: Transaction, group_id: str) -> list[int]:
    """The letters that one act puts up, held until the transaction ends, as `lock_letters` does."""
    # What is looked for first is locked by its id: in the order of the look two acts could wait for each other. Said
    # twice what can be reprocessed: whoever held the lock until now may have decided it.
    rows = await tx.rows(
        f"""
        SELECT id FROM own.letter
         WHERE id = ANY (ARRAY(SELECT id FROM ({_REACHED}) AS reached)) AND {REPROCESSABLE_OUTCOMES}
         ORDER BY id FOR NO KEY UPDATE
        """,  # noqa: S608  # constants of ours; values are bound
        group_id=group_id,
        most=MOST_PUT_UP,
    )
    return [row.id for row in rows]


async def digest_of(tx: Transaction, letter_ids: Collection[int]) -> str:
    """The one that `can_be_put_up` gave, if it saw these letters as they are now."""
    [row] = await tx.rows(
        f"SELECT {_DIGEST} AS digest FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[]))",  # noqa: S608  # constants of ours; values are bound
        ids=list(letter_ids),
    )
    digest: str = row.digest
    return digest


async def left_in_group(tx: Transaction, group_id: str) -> CappedCount:
    """Kept letters of it that are not put up, nor tried again by themselves."""
    [row] = await tx.rows(
        f"""
        SELECT count(*) AS letters
          FROM (SELECT id FROM own.letter
                 WHERE group_id = :group_id AND next_attempt_at IS NULL AND {REPROCESSABLE_OUTCOMES}
                 LIMIT :most) AS some_of
        """,  # noqa: S608  # constants of ours; values are bound
        group_id=group_id,
        most=MOST_PUT_UP + 1,
    )
    return CappedCount(count=min(row.letters, MOST_PUT_UP), is_capped=row.letters > MOST_PUT_UP)


async def raw_body(tx: Transaction, letter_id: int) -> bytes | None:
    """None: no such letter on record."""
    row = await tx.row("SELECT body FROM own.letter WHERE id = :id", id=letter_id)
    return None if row is None else bytes(row.body)


def _state(row: Row[Any]) -> LetterState:
    return LetterState(**row._asdict() | {"outcome": Outcome(row.outcome)})
