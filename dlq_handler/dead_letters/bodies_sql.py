"""Headers and bodies of letters on record, for whoever exports them: lists are made without."""

from collections.abc import Collection, Mapping

from dlq_handler.database.engine import Database

Contents = tuple[bytes, Mapping[str, object]]


async def contents(database: Database, letter_ids: Collection[int]) -> dict[int, Contents]:
    """By letter. One that retention deleted meanwhile is missing."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            "SELECT id, body, headers FROM own.letter WHERE id = ANY (CAST(:ids AS bigint[]))",
            ids=list(letter_ids),
        )
    return {row.id: (row.body or b"", row.headers or {}) for row in rows}
