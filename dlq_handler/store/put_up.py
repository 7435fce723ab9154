"""Letters that an operator puts up to be judged again, and the raw body that one asks for.

Put up means due: whichever sidecar looks first takes it up, under its gate and brake. So the act is one statement, in
the transaction of its line in the audit, and nothing is lost when whoever asked is gone a moment later.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Row

from dlq_handler.domain.letter_record import LetterRecord
from dlq_handler.domain.state_version import LetterState
from dlq_handler.domain.verdict import REJUDGEABLE, Outcome
from dlq_handler.store.letters import record_of
from dlq_handler.store.transaction import Transaction

_CAN_BE_JUDGED_AGAIN = [outcome.value for outcome in REJUDGEABLE]


async def lock_letters(tx: Transaction, letter_ids: Collection[int]) -> list[LetterRecord]:
    """Those that are on record, held until the transaction ends: what is decided of them stays true."""
    rows = await tx.rows(
        "SELECT * FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[])) ORDER BY id FOR NO KEY UPDATE",
        ids=list(letter_ids),
    )
    return [record_of(row) for row in rows]


async def states_of(tx: Transaction, letter_ids: Collection[int]) -> list[LetterState]:
    """Of those that are on record, as they are now, for whoever decides later."""
    rows = await tx.rows(
        """
        SELECT id, outcome, tries, judged_at, next_try_at FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[]))
        """,
        ids=list(letter_ids),
    )
    return [_state(row) for row in rows]


async def put_up(tx: Transaction, letter_ids: Collection[int]) -> list[int]:
    """The ids of those that were; settled letters and shadow records are left alone."""
    rows = await tx.rows(
        """
        UPDATE own.letter SET next_try_at = clock_timestamp()
         WHERE id = ANY (CAST(:ids AS bigint[])) AND outcome = ANY (CAST(:outcomes AS text[])) AND NOT is_shadow
        RETURNING id
        """,
        ids=list(letter_ids),
        outcomes=_CAN_BE_JUDGED_AGAIN,
    )
    return sorted(row.id for row in rows)


async def can_be_put_up(tx: Transaction, group_id: str, *, is_to_be: bool = False) -> list[LetterState]:
    """`is_to_be`: held until the transaction ends, as `lock_letters` does."""
    rows = await tx.rows(
        f"""
        SELECT id, outcome, tries, judged_at, next_try_at FROM own.letter
         WHERE group_id = :group_id AND outcome = ANY (CAST(:outcomes AS text[])) AND NOT is_shadow ORDER BY id
        {"FOR NO KEY UPDATE" if is_to_be else ""}
        """,  # noqa: S608  # our own words
        group_id=group_id,
        outcomes=_CAN_BE_JUDGED_AGAIN,
    )
    return [_state(row) for row in rows]


async def raw_body(tx: Transaction, letter_id: int) -> bytes | None:
    """None: no such letter on record."""
    row = await tx.row("SELECT body FROM own.letter WHERE id = :id", id=letter_id)
    return None if row is None else bytes(row.body)


def _state(row: Row[Any]) -> LetterState:
    return LetterState(**row._asdict() | {"outcome": Outcome(row.outcome)})
