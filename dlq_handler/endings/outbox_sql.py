"""The outbox: messages written with the change they are about, and kept until the broker has confirmed them.

Promises: of one execution only the oldest open message can be published, by one holder at a time. When a holder ends
without giving its leases back, the leases end, and the next replica that scans the outbox reclaims the entries.

The search for an older open message is written with LIMIT 1 and not as NOT EXISTS, which would be planned as a hash of
all that is pending: many, during an outage of the broker, and for every batch anew.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn, always, delete_in_batches
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.messages import ExecutionMessage
from dlq_handler.text import storable


class OutboxProblem(StrEnum):
    """Why the last attempt did not publish an entry. Other reasons, which no statement asks for, have no value."""

    UNROUTABLE = "unroutable"
    WITHHELD = "withheld"
    """The entry is closed and is not published again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLease:
    """Until it ends, no other replica publishes the entries that are written or claimed with it."""

    holder: str
    seconds: float
    taken_at: float
    """The process clock before it is written: a slow commit must not make it outlive the one in the table."""

    @property
    def good_until(self) -> float:
        """By the process clock."""
        return self.taken_at + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """A message that this replica has the lease of."""

    id: int
    message: ExecutionMessage
    good_until: float
    """The end of the lease, by the process clock."""
    possibly_published: bool = False
    """An earlier holder ended with it, or got no answer: the broker may have it already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    count: int
    oldest_age_seconds: float
    """0 when nothing is pending."""
    unroutable: int
    """How many of them were unroutable at the last attempt."""


async def rehearse(tx: Transaction) -> None:
    """Change nothing, with the rights that `add_to_outbox` needs."""
    await tx.run("INSERT INTO own.outbox (message_id) SELECT message_id FROM own.outbox WHERE false")


async def add_to_outbox(
    tx: Transaction, messages: Sequence[ExecutionMessage], *, lease: OutboxLease | None = None
) -> list[OutboxEntry]:
    """Write messages. With a lease, those that may be published at once are leased and returned.

    A message behind an older open one of its execution waits for that one. A message id that is there already was
    written by dlq-handler, so that entry is left as it is.
    """
    if not messages:
        return []
    ordered = sorted(messages, key=lambda message: message.execution_id)
    rows = await tx.rows(
        """
        INSERT INTO own.outbox (
            message_id, correlation_id, execution_id, is_workflow_task, body, exchange, routing_key, next_attempt_at,
            created_at, attempts, lease_holder, lease_until)
        SELECT given.message_id, given.correlation_id, given.execution_id, given.is_workflow_task, given.body,
               given.exchange, given.routing_key, coalesce(given.due_at, now()), now(),
               CASE WHEN may_go THEN 1 ELSE 0 END, CASE WHEN may_go THEN CAST(:holder AS text) END,
               CASE WHEN may_go THEN clock_timestamp() + make_interval(secs => :lease_seconds) END
          FROM unnest(CAST(:message_id AS uuid[]), CAST(:correlation_id AS uuid[]),
                      CAST(:execution_id AS bigint[]), CAST(:is_workflow_task AS boolean[]),
                      CAST(:body AS bytea[]), CAST(:exchange AS text[]), CAST(:routing_key AS text[]),
                      CAST(:due_at AS timestamptz[]))
               AS given(message_id, correlation_id, execution_id, is_workflow_task, body, exchange, routing_key, due_at)
         CROSS JOIN LATERAL (SELECT coalesce(
                   (SELECT false FROM own.outbox older
                     WHERE older.execution_id = given.execution_id AND older.confirmed_at IS NULL LIMIT 1),
                   CAST(:holder AS text) IS NOT NULL AND given.due_at IS NULL) AS may_go OFFSET 0) AS turn
        ON CONFLICT (message_id) DO NOTHING
        RETURNING id, message_id, attempts
        """,
        holder=lease.holder if lease else None,
        lease_seconds=lease.seconds if lease else 0.0,
        message_id=[message.message_id for message in ordered],
        correlation_id=[message.correlation_id for message in ordered],
        execution_id=[message.execution_id for message in ordered],
        is_workflow_task=[message.is_workflow_task for message in ordered],
        body=[message.body for message in ordered],
        exchange=[message.exchange for message in ordered],
        routing_key=[message.routing_key for message in ordered],
        due_at=[message.due_at for message in ordered],
    )
    if lease is None:
        return []
    # The bodies need not come back over the wire: they are here.
    by_id = {message.message_id: message for message in ordered}
    return [
        OutboxEntry(id=row.id, message=by_id[str(row.message_id)], good_until=lease.good_until)
        for row in rows
        if row.attempts > 0
    ]


async def claim_due(database: Database, lease: OutboxLease, *, limit: int) -> list[OutboxEntry]:
    """Take up to `limit` entries that are due and not leased, in the order in which they became due."""
    # By the statement's time: an index cannot be searched by a clock that moves.
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            WITH due AS MATERIALIZED (
                SELECT id FROM own.outbox waiting
                 WHERE confirmed_at IS NULL AND next_attempt_at <= statement_timestamp()
                   AND (lease_until IS NULL OR lease_until < clock_timestamp())
                   AND NOT coalesce((SELECT true FROM own.outbox older
                                      WHERE older.execution_id = waiting.execution_id
                                        AND older.confirmed_at IS NULL AND older.id < waiting.id
                                      LIMIT 1), false)
                 ORDER BY next_attempt_at, id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
            UPDATE own.outbox o
               SET possibly_published = o.possibly_published OR o.lease_holder IS NOT NULL,
                   lease_holder = :holder, attempts = o.attempts + 1,
                   lease_until = clock_timestamp() + make_interval(secs => :lease_seconds)
              FROM due WHERE o.id = due.id
            RETURNING o.id, o.message_id, o.correlation_id, o.execution_id, o.is_workflow_task, o.exchange,
                      o.routing_key, o.body, o.possibly_published
            """,
            holder=lease.holder,
            limit=limit,
            lease_seconds=lease.seconds,
        )
    return [
        OutboxEntry(
            id=row.id,
            message=ExecutionMessage(
                message_id=str(row.message_id),
                correlation_id=str(row.correlation_id),
                exchange=row.exchange,
                routing_key=row.routing_key,
                body=row.body,
                execution_id=row.execution_id,
                is_workflow_task=row.is_workflow_task,
            ),
            good_until=lease.good_until,
            possibly_published=row.possibly_published,
        )
        for row in sorted(rows, key=lambda row: row.id)
    ]


async def mark_confirmed(database: Database, ids: Sequence[int]) -> list[float]:
    """Mark entries that the broker has confirmed, whichever replica holds the lease by now.

    Returns how many seconds each took from the transaction that wrote it to its mark. In one row: a row for each entry
    would cost more than the mark.
    """
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            WITH marked AS (
                UPDATE own.outbox
                   SET confirmed_at = coalesce(confirmed_at, clock_timestamp()), lease_holder = NULL,
                       lease_until = NULL
                 WHERE id = ANY (CAST(:ids AS bigint[]))
                RETURNING CAST(extract(epoch FROM confirmed_at - created_at) AS double precision) AS took)
            SELECT coalesce(array_agg(took), '{}') AS took FROM marked
            """,
            ids=sorted(ids),
        )
    return list(row.took)


async def mark_withheld(database: Database, ids: Sequence[int]) -> None:
    """Close entries that must not be repeated, with the reason on record."""
    async with database.transaction() as tx:
        await tx.run(
            """
            UPDATE own.outbox
               SET confirmed_at = coalesce(confirmed_at, clock_timestamp()), lease_holder = NULL,
                   lease_until = NULL, problem = :problem, last_error = :explanation
             WHERE id = ANY (CAST(:ids AS bigint[]))
            """,
            ids=sorted(ids),
            problem=OutboxProblem.WITHHELD.value,
            explanation="Attune has already answered it with a retry",
        )


async def put_back(
    database: Database,
    errors: Mapping[int, str],
    *,
    unroutable: Collection[int],
    possibly_published: Collection[int],
    max_backoff_seconds: float,
) -> None:
    """Give back the lease of entries that were not confirmed; each waits twice as long as the time before.

    Entries in `possibly_published` got no answer; the others were certainly not delivered.
    """
    async with database.transaction() as tx:
        await tx.run(
            """
            UPDATE own.outbox o
               SET lease_holder = NULL, lease_until = NULL, last_error = failed.error,
                   problem = CASE WHEN o.id = ANY (CAST(:unroutable AS bigint[])) THEN CAST(:problem AS text) END,
                   possibly_published = o.possibly_published OR o.id = ANY (CAST(:possibly_published AS bigint[])),
                   next_attempt_at = clock_timestamp() + make_interval(
                       secs => least(:most, 2.0 ^ least(greatest(o.attempts, 1) - 1, 30)))
              FROM unnest(CAST(:ids AS bigint[]), CAST(:errors AS text[])) AS failed(id, error)
             WHERE o.id = failed.id AND o.confirmed_at IS NULL
            """,
            most=float(max_backoff_seconds),
            unroutable=list(unroutable),
            problem=OutboxProblem.UNROUTABLE.value,
            possibly_published=list(possibly_published),
            ids=list(errors),
            errors=[storable(error)[:500] for error in errors.values()],
        )


async def release(database: Database, *, holder: str) -> None:
    """Give back every lease of this holder, so that no replica waits for its end."""
    async with database.transaction() as tx:
        await tx.run(
            """
            UPDATE own.outbox SET lease_holder = NULL, lease_until = NULL
             WHERE confirmed_at IS NULL AND lease_holder = :holder
            """,
            holder=holder,
        )


async def pending(database: Database) -> Pending:
    async with database.transaction() as tx:
        row = await tx.row(
            """
            SELECT count(*) AS entries,
                   CAST(coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)
                        AS double precision) AS age,
                   count(*) FILTER (WHERE problem = :unroutable) AS unroutable
              FROM own.outbox WHERE confirmed_at IS NULL
            """,
            unroutable=OutboxProblem.UNROUTABLE.value,
        )
    assert row is not None  # noqa: S101  # an aggregate without GROUP BY has exactly one row
    return Pending(count=row.entries, oldest_age_seconds=max(row.age, 0.0), unroutable=row.unroutable)


async def delete_confirmed(
    database: Database, *, older_than_seconds: float, may_go_on: MayGoOn = always
) -> int:
    """Delete old entries that the broker confirmed. Returns their number."""
    return await delete_in_batches(
        database,
        "outbox",
        "created_at < now() - make_interval(secs => :age) AND confirmed_at IS NOT NULL",
        until="created_at >= now() - make_interval(secs => :age)",
        may_go_on=may_go_on,
        age=float(older_than_seconds),
    )
