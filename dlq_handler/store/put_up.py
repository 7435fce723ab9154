"""Letters that an operator puts up to be judged again, and the raw body that one asks for.

Put up means due: whichever sidecar looks first takes it up, under its gate and brake. So the act is one statement, in
the transaction of its line in the audit, and nothing is lost when whoever asked is gone a moment later.
"""

from collections.abc import Collection

from dlq_handler.domain.letter_record import LetterRecord
from dlq_handler.domain.verdict import REJUDGEABLE
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


async def put_up(tx: Transaction, letter_ids: Collection[int]) -> list[int]:
    """The ids of those that were; settled letters and shadow records are left alone."""
    return await _put_up(tx, "id = ANY (CAST(:ids AS bigint[]))", ids=list(letter_ids))


async def put_up_group(tx: Transaction, group_id: str) -> list[int]:
    return await _put_up(tx, "group_id = :group_id", group_id=group_id)


async def can_be_put_up(tx: Transaction, group_id: str) -> list[int]:
    rows = await tx.rows(
        """
        SELECT id FROM own.letter
         WHERE group_id = :group_id AND outcome = ANY (CAST(:outcomes AS text[])) AND NOT is_shadow ORDER BY id
        """,
        group_id=group_id,
        outcomes=_CAN_BE_JUDGED_AGAIN,
    )
    return [row.id for row in rows]


async def _put_up(tx: Transaction, which: str, **parameters: object) -> list[int]:
    rows = await tx.rows(
        f"""
        UPDATE own.letter SET next_try_at = clock_timestamp()
         WHERE {which} AND outcome = ANY (CAST(:outcomes AS text[])) AND NOT is_shadow RETURNING id
        """,  # noqa: S608  one of two literals above
        outcomes=_CAN_BE_JUDGED_AGAIN,
        **parameters,
    )
    return sorted(row.id for row in rows)


async def raw_body(tx: Transaction, letter_id: int) -> bytes | None:
    """None: no such letter on record."""
    row = await tx.row("SELECT body FROM own.letter WHERE id = :id", id=letter_id)
    return None if row is None else bytes(row.body)
