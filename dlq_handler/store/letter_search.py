"""Find letters on record by what people know of them. Pages by id, newest first; counts stop at a cap.

Only conditions that are asked for are in the statement: with an OR for each that is not, no index would be used, and a
page would read every letter there is.
"""

from datetime import datetime

from dlq_handler.domain.letter_filter import CappedCount, LetterFilter, LetterPage
from dlq_handler.domain.read_dead_letter import INT64
from dlq_handler.domain.text import storable
from dlq_handler.store.engine import Database
from dlq_handler.store.letters import LISTED, record_of
from dlq_handler.store.transaction import Transaction

# A number is looked for among the ids of executions and letters too.
_LONGEST_NUMBER = 19


async def search(
    database: Database,
    wanted: LetterFilter,
    *,
    before_id: int | None = None,
    after_id: int | None = None,
    limit: int = 50,
) -> LetterPage:
    """The newest, or those next to an id: older ones with `before_id`, newer ones with `after_id`."""
    where, parameters = _where(wanted)
    is_backwards = after_id is not None and before_id is None
    if before_id is not None:
        where.append("id < :before_id")
        parameters["before_id"] = before_id
    if after_id is not None:
        where.append("id > :after_id")
        parameters["after_id"] = after_id
    async with database.transaction() as tx:
        # One more than is shown, to know whether there are more.
        rows = await tx.rows(
            f"SELECT {LISTED} FROM own.letter WHERE {' AND '.join(where)}"  # noqa: S608  # our own texts
            f" ORDER BY id {'ASC' if is_backwards else 'DESC'} LIMIT :limit",
            **parameters,
            limit=limit + 1,
        )
    has_more = len(rows) > limit
    records = [record_of(row) for row in rows[:limit]]
    if is_backwards:
        records.reverse()
        older = records[-1].id if records else (after_id or 0) + 1
        return LetterPage(records=records, older=older, newer=records[0].id if has_more else None)
    newer = None
    if before_id is not None:
        newer = records[0].id if records else before_id - 1
    return LetterPage(records=records, older=records[-1].id if has_more else None, newer=newer)


async def count(database: Database, wanted: LetterFilter, *, cap: int = 1000) -> CappedCount:
    return await _count(database, wanted, cap=cap, after_id=None)


async def newer_than(
    database: Database, wanted: LetterFilter, letter_id: int, *, cap: int = 1000
) -> CappedCount:
    """How many such letters came after this one."""
    return await _count(database, wanted, cap=cap, after_id=letter_id)


async def neighbours(database: Database, letter_id: int) -> tuple[int | None, int | None]:
    """The letter before this one, and the one after it."""
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT (SELECT id FROM own.letter WHERE id < :id ORDER BY id DESC LIMIT 1) AS older,
                   (SELECT id FROM own.letter WHERE id > :id ORDER BY id LIMIT 1) AS newer
            """,
            id=letter_id,
        )
    return row.older, row.newer


async def last_received_at(database: Database) -> datetime | None:
    """When the last one came that counts."""
    async with database.transaction() as tx:
        [row] = await tx.rows("SELECT max(last_at) AS last_at FROM own.letter_group")
    last_at: datetime | None = row.last_at
    return last_at


async def _count(database: Database, wanted: LetterFilter, *, cap: int, after_id: int | None) -> CappedCount:
    where, parameters = _where(wanted)
    if after_id is not None:
        where.append("id > :after_id")
        parameters["after_id"] = after_id
    async with database.transaction() as tx:
        counted = await _up_to(tx, " AND ".join(where), parameters, cap + 1)
    return CappedCount(count=min(counted, cap), is_capped=counted > cap)


async def _up_to(tx: Transaction, where: str, parameters: dict[str, object], most: int) -> int:
    [row] = await tx.rows(
        f"SELECT count(*) AS letters FROM (SELECT FROM own.letter WHERE {where} LIMIT :most) AS found",  # noqa: S608  # our own texts
        **parameters,
        most=most,
    )
    return int(row.letters)


def _where(wanted: LetterFilter) -> tuple[list[str], dict[str, object]]:
    """The conditions as texts of ours, with what the caller gave as parameters."""
    where, parameters = ["true"], dict[str, object]()

    def add(condition: str, name: str, value: object) -> None:
        if value is not None:
            where.append(condition)
            parameters[name] = storable(value) if isinstance(value, str) else value

    add("group_id = :group_id", "group_id", wanted.group)
    add(
        "group_id = ANY (ARRAY(SELECT id FROM own.letter_group WHERE cause = :cause))",
        "cause",
        None if wanted.cause is None else wanted.cause.value,
    )
    add("reason = :reason", "reason", wanted.reason)
    add("outcome = :outcome", "outcome", None if wanted.outcome is None else wanted.outcome.value)
    add("worker_id = :worker_id", "worker_id", wanted.worker_id)
    add("action_ref = :action", "action", wanted.action)
    add("received_at >= :since", "since", wanted.since)
    add("received_at < :until", "until", wanted.until)
    if wanted.search is not None:
        text = storable(wanted.search.strip())
        found = ["message_id = :search", "correlation_id = :search"]
        parameters["search"] = text
        is_number = text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
        if is_number and int(text) in INT64:
            found += ["execution_id = :number", "id = :number"]
            parameters["number"] = int(text)
        where.append(f"({' OR '.join(found)})")
    return where, parameters
