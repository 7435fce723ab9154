"""Records of dead letters: written in batches, read, deleted by retention.

A batch locks and inserts records in the order of their keys, so that two replicas that have parts of the same batch
never deadlock (lock order: endings/ender.py).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn, always, delete_in_batches
from dlq_handler.database.postgres_values import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.decision import UNRESOLVED, Outcome
from dlq_handler.dead_letters.group import group_key_of
from dlq_handler.dead_letters.listing import LetterRecord
from dlq_handler.dead_letters.record import Entry
from dlq_handler.host.names import REQUESTED_KEY
from dlq_handler.masking import masked, masked_text
from dlq_handler.text import storable

Contents = tuple[bytes, Mapping[str, object]]

_FIELDS = frozenset(field.name for field in fields(LetterRecord))

# The columns of a list: without bodies and headers.
LISTED = """
    id, key, message_id, correlation_id, message_type, execution_id, worker_id, action_ref, queue, reason, died_at,
    first_death_queue, exchange, routing_key, attempt_updated_at, outcome, explanation, error, attempts,
    next_attempt_at, repeats, repeated_at, received_at, decided_at, replica, evidence, is_shadow, body_size,
    NULL AS body, group_id, NULL AS headers"""
COMPLETE = LISTED.replace("NULL AS", "")


async def show(database: Database, record_id: int) -> LetterRecord | None:
    async with database.transaction() as tx:
        row = await tx.row(f"SELECT {COMPLETE} FROM own.letter WHERE id = :id", id=record_id)  # noqa: S608  # constants
    return record_of(row) if row else None


async def of_execution(database: Database, execution_id: int) -> list[LetterRecord]:
    """Every dead letter of this execution, in the order of arrival."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            f"SELECT {COMPLETE} FROM own.letter WHERE execution_id = :id ORDER BY id",  # noqa: S608  # constants
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


async def rehearse(tx: Transaction) -> None:
    """Change nothing, with every right that a batch needs on the tables of dead letters."""
    await tx.run("INSERT INTO own.letter (key) SELECT key FROM own.letter WHERE false")
    await tx.run("INSERT INTO own.letter_group (id) SELECT id FROM own.letter_group WHERE false")
    await tx.run(
        "INSERT INTO own.letter_minute (group_id) SELECT group_id FROM own.letter_minute WHERE false"
    )


async def count_repeats(tx: Transaction, arrivals: Mapping[str, int]) -> set[str]:
    """Add the arrivals of each key to the repeats of its record. Returns the keys that are on record."""
    rows = await tx.rows(
        """
        WITH seen AS MATERIALIZED (
            SELECT id, key FROM own.letter WHERE key = ANY (CAST(:keys AS text[])) ORDER BY key FOR NO KEY UPDATE)
        UPDATE own.letter l SET repeats = l.repeats + given.arrivals, repeated_at = now()
          FROM seen JOIN unnest(CAST(:keys AS text[]), CAST(:arrivals AS integer[])) AS given(key, arrivals)
                      ON given.key = seen.key
         WHERE l.id = seen.id RETURNING l.key
        """,
        keys=list(arrivals),
        arrivals=list(arrivals.values()),
    )
    return {row.key for row in rows}


async def record_letters(
    tx: Transaction,
    entries: Sequence[Entry],
    *,
    replica: str,
    is_shadow: bool = False,
    has_group: bool = True,
) -> list[Entry]:
    """Record dead letters. Of two with the same key the first one stays, in this batch or on record.

    Returns the entries that this call recorded. `has_group=False` records them in no group.
    """
    if not entries:
        return []
    letters = [entry.letter for entry in entries]
    # Ids follow the order of delivery, the insert follows the keys.
    result = await tx.run(
        """
        INSERT INTO own.letter (
            id, key, message_id, correlation_id, message_type, execution_id, worker_id, action_ref, queue,
            reason, death_count, died_at, first_death_queue, exchange, routing_key, attempt_updated_at, body, body_size,
            parse_error, outcome, explanation, error, attempts, next_attempt_at, evidence, group_id, headers,
            received_at, decided_at, replica, is_shadow)
        SELECT given.*, now(), now(), :replica, :is_shadow
          FROM (SELECT nextval('own.letter_id_seq') AS id, given.*
                  FROM unnest(
                    CAST(:key AS text[]), CAST(:message_id AS text[]), CAST(:correlation_id AS text[]),
                    CAST(:message_type AS text[]), CAST(:execution_id AS bigint[]),
                    CAST(:worker_id AS bigint[]), CAST(:action_ref AS text[]), CAST(:queue AS text[]),
                    CAST(:reason AS text[]), CAST(:death_count AS bigint[]), CAST(:died_at AS timestamptz[]),
                    CAST(:first_death_queue AS text[]), CAST(:exchange AS text[]),
                    CAST(:routing_key AS text[]), CAST(:attempt_updated_at AS timestamptz[]), CAST(:body AS bytea[]),
                    CAST(:body_size AS bigint[]), CAST(:parse_error AS text[]), CAST(:outcome AS text[]),
                    CAST(:explanation AS text[]), CAST(:error AS text[]), CAST(:attempts AS integer[]),
                    CAST(:next_attempt_at AS timestamptz[]), CAST(:evidence AS jsonb[]),
                    CAST(:group_id AS text[]), CAST(:headers AS jsonb[])
                  ) AS given(key)) AS given
         ORDER BY given.key, given.id
        ON CONFLICT (key) DO NOTHING
        """,
        key=[letter.key for letter in letters],
        message_id=_texts(letter.message_id for letter in letters),
        correlation_id=_texts(letter.correlation_id for letter in letters),
        message_type=_texts(letter.message_type for letter in letters),
        execution_id=[letter.execution_id for letter in letters],
        worker_id=[letter.worker_id for letter in letters],
        action_ref=_texts(letter.action_ref for letter in letters),
        queue=_texts(letter.queue for letter in letters),
        reason=_texts(letter.reason for letter in letters),
        death_count=[letter.death.count if letter.death else None for letter in letters],
        died_at=[letter.died_at for letter in letters],
        first_death_queue=_texts(letter.first_death_queue for letter in letters),
        exchange=_texts(letter.exchange for letter in letters),
        routing_key=_texts(letter.routing_key for letter in letters),
        attempt_updated_at=[letter.attempt_updated_at for letter in letters],
        body=[letter.body for letter in letters],
        body_size=[letter.body_size for letter in letters],
        parse_error=_texts(letter.parse_error for letter in letters),
        outcome=[entry.outcome.value for entry in entries],
        explanation=_texts(entry.explanation for entry in entries),
        error=_texts(entry.error for entry in entries),
        attempts=[entry.attempts for entry in entries],
        next_attempt_at=[entry.next_attempt_at for entry in entries],
        evidence=[as_jsonb(entry.evidence) for entry in entries],
        group_id=[group_key_of(entry).id if has_group and not is_shadow else None for entry in entries],
        headers=[letter.headers for letter in letters],
        replica=replica,
        is_shadow=is_shadow,
    )
    if result.rowcount == len(entries):
        return list(entries)
    return await _recorded(tx, entries)


async def record_bare(tx: Transaction, entry: Entry, *, replica: str, is_shadow: bool) -> None:
    """Record only key, body and error of a dead letter whose other fields the database refuses.

    Nothing here is a value that a sender chose, but for the bytes of the body, and bytea takes any bytes.
    """
    await tx.run(
        """
        INSERT INTO own.letter (
            key, reason, exchange, routing_key, body, body_size, parse_error, outcome, explanation, error,
            received_at, decided_at, replica, is_shadow)
        VALUES (:key, :reason, '', '', :body, :body_size, :parse_error, :outcome, :explanation, :error, now(), now(),
                :replica, :is_shadow)
        ON CONFLICT (key) DO NOTHING
        """,
        key=entry.letter.key,
        reason=entry.letter.reason,
        body=entry.letter.body,
        body_size=entry.letter.body_size,
        parse_error=entry.letter.parse_error,
        outcome=entry.outcome.value,
        explanation=entry.explanation,
        error=None if entry.error is None else ascii(entry.error),
        replica=replica,
        is_shadow=is_shadow,
    )


async def _recorded(tx: Transaction, entries: Sequence[Entry]) -> list[Entry]:
    """Some were recorded by another replica meanwhile. Only then the rows of this transaction are read: reading the
    keys of every batch would cost time.
    """
    first = {entry.letter.key: entry for entry in reversed(entries)}
    rows = await tx.rows(
        """
        SELECT key FROM own.letter
         WHERE key = ANY (CAST(:keys AS text[])) AND xmin = CAST(pg_current_xact_id() AS xid) AND repeats = 0
        """,
        keys=list(first),
    )
    return [first[row.key] for row in rows]


def _texts(values: Iterable[str | None]) -> list[str | None]:
    """The parser has escaped them; an unescaped one would make the database refuse the whole batch."""
    texts = list(values)
    whole = "".join(filter(None, texts))
    if whole.isascii() and "\x00" not in whole:
        return texts
    return [None if text is None else storable(text) for text in texts]


_TEXTS = frozenset({"explanation", "error", "last_error"})
_OBJECTS = frozenset({"evidence", "headers"})


def for_people(row: Row[Any]) -> dict[str, Any]:
    """The columns of a row, with secrets masked: an error quotes the row that a trigger refused, or an address.

    Every record that people read is made here; decisions read the row as it is. The page that shows a body masks it.
    """
    return {name: _shown(name, value) for name, value in row._asdict().items()}


def _shown(name: str, value: Any) -> Any:
    if name in _TEXTS and value is not None:
        return masked_text(value)
    return masked(value) if name in _OBJECTS else value
