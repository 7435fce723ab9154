"""Find letters on record by what people know of them. Pages by id, newest first; counts stop at a cap.

Each condition is in the statement only if it is asked for. A group, a cause, a worker, an action, an id, and every
reason and outcome but two have an index that leads to their letters: what a page of the rare ones costs does not depend
on how many others there are. The two are `expired` and `failed`. Nearly every letter is, so that an index would slow
down every batch, and along the ids a page of them is soon full.

Not promised: a quick page of what is common by itself and rare together, or of failed letters among a million that are
kept. The search goes through all letters of the rarest condition, and takes longer the more there are. After
`database.statement_timeout_ms` it is given up as `Unavailable`. Memory is a page always.
"""

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.groups_sql import REJECTED_REQUEST
from dlq_handler.dead_letters.listing import CameBefore, CappedCount, LetterFilter, LetterPage
from dlq_handler.dead_letters.records_sql import LISTED, record_of
from dlq_handler.text import INT64, storable

_LONGEST_NUMBER = 19
_HIGHEST = INT64[-1]

# Ids and times rise together, but for transactions that run side by side, which take less than a minute. So the letters
# of a window lie between those of minutes well outside of it: from there a page begins, and not at the newest letter.
# A rejected request has one record, however often it arrives: it is in each window from its first to its last arrival.
# OFFSET 0 keeps its own index in use: for the lowest id alone PostgreSQL would go along all ids.
_REPEATED_SINCE = f"{REJECTED_REQUEST} AND greatest(received_at, repeated_at) >= :since"
_SINCE = f"""
    (received_at >= :since OR ({_REPEATED_SINCE}))
    AND id > least(
        coalesce((SELECT last_id FROM own.letter_minute
                   WHERE minute < CAST(:since AS timestamptz) - interval '2 minutes'
                   ORDER BY minute DESC LIMIT 1), 0),
        (SELECT min(id) - 1 FROM (SELECT id FROM own.letter WHERE {_REPEATED_SINCE} OFFSET 0) AS repeated))"""  # noqa: S608  # constant text
_BEFORE_LATER = f"""
    id <= coalesce((SELECT last_id FROM own.letter_minute
                    WHERE minute > CAST(:until AS timestamptz) + interval '1 minute'
                    ORDER BY minute LIMIT 1), {_HIGHEST})"""  # noqa: S608  # an own number


async def search(
    database: Database,
    wanted: LetterFilter,
    *,
    before_id: int | None = None,
    after_id: int | None = None,
    limit: int = 50,
) -> LetterPage:
    """The newest, or those beside an id: older ones with `before_id`, newer ones with `after_id`."""
    is_upwards = after_id is not None and before_id is None
    asked = _Asked(wanted, before_id=before_id, after_id=after_id)
    direction = "ASC" if is_upwards else "DESC"
    async with database.transaction() as tx:
        # One more than is shown: then there is another page.
        rows = await tx.rows(
            f"SELECT {LISTED} FROM own.letter WHERE {asked.found(direction)} ORDER BY id {direction} LIMIT :most",  # noqa: S608  # constant text
            **asked.parameters,
            most=limit + 1,
        )
    has_more = len(rows) > limit
    records = [record_of(row) for row in rows[:limit]]
    if is_upwards:
        records.reverse()
        older = records[-1].id if records else (after_id or 0) + 1
        return LetterPage(records=records, older=older, newer=records[0].id if has_more else None)
    newer = None
    if before_id is not None:
        newer = records[0].id if records else before_id - 1
    return LetterPage(records=records, older=records[-1].id if has_more else None, newer=newer)


async def count(database: Database, wanted: LetterFilter, *, cap: int = 1000) -> CappedCount:
    return await _count(database, _Asked(wanted), cap)


async def newer_than(
    database: Database, wanted: LetterFilter, letter_id: int, *, cap: int = 1000
) -> CappedCount:
    """How many of them were received after this one."""
    return await _count(database, _Asked(wanted, after_id=letter_id), cap)


async def neighbours(database: Database, letter_id: int) -> tuple[int | None, int | None]:
    """The record before this one, and the one after it."""
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT (SELECT id FROM own.letter WHERE id < :id ORDER BY id DESC LIMIT 1) AS older,
                   (SELECT id FROM own.letter WHERE id > :id ORDER BY id LIMIT 1) AS newer
            """,
            id=letter_id,
        )
    return row.older, row.newer


async def came_before(database: Database) -> CameBefore:
    """Retention deletes dead letters after a day and groups after a month, but the sequence keeps its last value."""
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT pg_sequence_last_value('own.letter_id_seq') IS NOT NULL AS has_any,
                   (SELECT max(last_at) FROM own.letter_group) AS last_at
            """
        )
    return CameBefore(has_any=row.has_any, last_at=row.last_at)


async def _count(database: Database, asked: "_Asked", cap: int) -> CappedCount:
    async with database.transaction() as tx:
        [row] = await tx.rows(
            f"""
            SELECT count(*) AS letters
              FROM (SELECT id FROM own.letter WHERE {asked.found("DESC")} ORDER BY id DESC LIMIT :most) AS found
            """,  # noqa: S608  # constant text
            **asked.parameters,
            most=cap + 1,
        )
    return CappedCount(count=min(row.letters, cap), is_capped=row.letters > cap)


class _Asked:
    """The conditions as constant texts, and the values of the caller as their parameters."""

    def __init__(
        self, wanted: LetterFilter, *, before_id: int | None = None, after_id: int | None = None
    ) -> None:
        self.parameters: dict[str, object] = {}
        self._conditions = ["true"]
        self._category = wanted.category
        self._add("id < :before_id", "before_id", before_id)
        self._add("id > :after_id", "after_id", after_id)
        self._add("group_id = :group_id", "group_id", wanted.group)
        self._add("reason = :reason", "reason", wanted.reason)
        self._add("outcome = :outcome", "outcome", None if wanted.outcome is None else wanted.outcome.value)
        self._add("worker_id = :worker_id", "worker_id", wanted.worker_id)
        self._add("action_ref = :action", "action", wanted.action)
        self._add(_SINCE, "since", wanted.since)
        self._add(f"received_at < :until AND {_BEFORE_LATER}", "until", wanted.until)
        if wanted.search is not None:
            self._add_search(storable(wanted.search.strip()))

    def found(self, direction: str) -> str:
        """The WHERE clause."""
        conditions = " AND ".join(self._conditions)
        if self._category is None:
            return conditions
        self.parameters["category"] = self._category.value
        # So many of each group, and of these the first: joined, all letters of a cause would be read and sorted. Pairs
        # and no "group_id = g.id", of which the planner would guess that it holds for many, and go along the ids.
        return f"""
            id IN (SELECT some_of.id FROM own.letter_group g
                    CROSS JOIN LATERAL (SELECT id FROM own.letter
                                         WHERE (group_id, id) >= (g.id, 0) AND (group_id, id) <= (g.id, {_HIGHEST})
                                           AND {conditions}
                                         ORDER BY group_id {direction}, id {direction} LIMIT :most) AS some_of
                    WHERE g.category = :category ORDER BY some_of.id {direction} LIMIT :most)
            """  # noqa: S608  # constant text

    def _add(self, condition: str, name: str, value: object) -> None:
        if value is not None:
            self._conditions.append(condition)
            self.parameters[name] = storable(value) if isinstance(value, str) else value

    def _add_search(self, text: str) -> None:
        found = ["message_id = :search", "correlation_id = :search"]
        self.parameters["search"] = text
        is_number = text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
        if is_number and int(text) in INT64:
            found += ["execution_id = :number", "id = :number"]
            self.parameters["number"] = int(text)
        self._conditions.append(f"({' OR '.join(found)})")
