"""The outbox: notices written with the change they announce, and kept until the broker has confirmed them.

Promises: of one execution only the oldest open notice can be taken up, and by one holder at a time; a holder
that died loses its lease, and whoever looks next adopts the entry.

The look for an older open notice is written with LIMIT 1 and not as NOT EXISTS, which would be planned as a hash of
all that is pending: many, while the broker is away, and for every batch anew.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn, always, delete_in_batches
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.messages import Notice
from dlq_handler.text import storable

# How the last error of a notice begins that no queue took.
UNROUTABLE = "unroutable: "
WITHHELD = "not repeated: the host has answered it with a retry already"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """A notice that we hold the lease of: nobody else publishes it until the lease ends."""

    id: int
    message_id: UUID
    correlation_id: UUID
    execution_id: int
    is_workflow_task: bool
    exchange: str
    routing_key: str
    body: bytes
    created_at: datetime
    attempts: int
    """How often it was taken up for publishing, this time included."""
    possibly_published: bool = False
    """An earlier holder died with it, or got no answer: the broker may have it already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    count: int
    oldest_age_seconds: float
    """0 when nothing is pending."""
    unroutable: int
    """How many of them no queue took at the last try."""


async def add_to_outbox(
    tx: Transaction,
    notices: Sequence[Notice],
    *,
    exchange: str,
    routing_key: str,
    lease_holder: str | None,
    lease_seconds: float,
) -> list[OutboxEntry]:
    """Write notices; with a holder, those that may go out at once are leased to it and returned.

    A notice behind an older open one of its execution waits for it. A message id that is there already was
    announced by us, so it is left as it is.
    """
    if not notices:
        return []
    ordered = sorted(notices, key=lambda notice: notice.execution_id)
    rows = await tx.rows(
        """
        INSERT INTO own.outbox (
            message_id, correlation_id, execution_id, is_workflow_task, body, exchange, routing_key,
            created_at, next_attempt_at, attempts, lease_holder, lease_until)
        SELECT given.*, :exchange, :routing_key, now(), now(),
               CASE WHEN may_go THEN 1 ELSE 0 END, CASE WHEN may_go THEN CAST(:holder AS text) END,
               CASE WHEN may_go THEN clock_timestamp() + make_interval(secs => :lease_seconds) END
          FROM unnest(CAST(:message_id AS uuid[]), CAST(:correlation_id AS uuid[]),
                      CAST(:execution_id AS bigint[]), CAST(:is_workflow_task AS boolean[]),
                      CAST(:body AS bytea[]))
               AS given(message_id, correlation_id, execution_id, is_workflow_task, body)
         CROSS JOIN LATERAL (SELECT coalesce(
                   (SELECT false FROM own.outbox older
                     WHERE older.execution_id = given.execution_id AND older.confirmed_at IS NULL LIMIT 1),
                   CAST(:holder AS text) IS NOT NULL) AS may_go OFFSET 0) AS turn
        ON CONFLICT (message_id) DO NOTHING
        RETURNING id, message_id, created_at, attempts
        """,
        exchange=exchange,
        routing_key=routing_key,
        holder=lease_holder,
        lease_seconds=lease_seconds,
        message_id=[notice.message_id for notice in ordered],
        correlation_id=[notice.correlation_id for notice in ordered],
        execution_id=[notice.execution_id for notice in ordered],
        is_workflow_task=[notice.is_workflow_task for notice in ordered],
        body=[notice.body for notice in ordered],
    )
    # The bodies need not come back over the wire: they are here.
    by_id = {notice.message_id: notice for notice in ordered}
    return [
        OutboxEntry(
            id=row.id,
            message_id=row.message_id,
            correlation_id=notice.correlation_id,
            execution_id=notice.execution_id,
            is_workflow_task=notice.is_workflow_task,
            exchange=exchange,
            routing_key=routing_key,
            body=notice.body,
            created_at=row.created_at,
            attempts=row.attempts,
        )
        for row, notice in ((row, by_id[row.message_id]) for row in rows if row.attempts > 0)
    ]


async def claim_due(
    database: Database, *, holder: str, limit: int, lease_seconds: float
) -> list[OutboxEntry]:
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
                      o.routing_key, o.body, o.created_at, o.attempts, o.possibly_published
            """,
            holder=holder,
            limit=limit,
            lease_seconds=lease_seconds,
        )
    return sorted((OutboxEntry(**row._asdict()) for row in rows), key=lambda entry: entry.id)


async def mark_confirmed(database: Database, ids: Sequence[int]) -> list[float]:
    """Whoever holds the lease by now: the broker has the message, and that is what the mark says.

    The answer is how many seconds each took from the transaction that wrote it to its mark. In one
    row, because this is asked for every batch, and a row for each entry would cost more than the mark.
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
    """Done with, and for whoever asks later: not because the broker confirmed it to us."""
    async with database.transaction() as tx:
        await tx.run(
            """
            UPDATE own.outbox
               SET confirmed_at = coalesce(confirmed_at, clock_timestamp()), lease_holder = NULL,
                   lease_until = NULL, last_error = :explanation
             WHERE id = ANY (CAST(:ids AS bigint[]))
            """,
            ids=sorted(ids),
            explanation=WITHHELD,
        )


async def put_back(
    database: Database,
    errors: Mapping[int, str],
    *,
    possibly_published: Collection[int],
    max_backoff_seconds: float,
) -> None:
    """Give up the lease of entries that were not confirmed; each waits twice as long as the time before.

    Those in `possibly_published` got no answer; the others were certainly not delivered.
    """
    async with database.transaction() as tx:
        await tx.run(
            """
            UPDATE own.outbox o
               SET lease_holder = NULL, lease_until = NULL, last_error = failed.error,
                   possibly_published = o.possibly_published OR o.id = ANY (CAST(:possibly_published AS bigint[])),
                   next_attempt_at = clock_timestamp() + make_interval(
                       secs => least(:most, 2.0 ^ least(greatest(o.attempts, 1) - 1, 30)))
              FROM unnest(CAST(:ids AS bigint[]), CAST(:errors AS text[])) AS failed(id, error)
             WHERE o.id = failed.id AND o.confirmed_at IS NULL
            """,
            most=float(max_backoff_seconds),
            possibly_published=list(possibly_published),
            ids=list(errors),
            errors=[storable(error)[:500] for error in errors.values()],
        )


async def release(database: Database, *, holder: str) -> None:
    """Let go of every lease of ours, so that nobody has to wait for its end."""
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
                   count(*) FILTER (WHERE starts_with(last_error, :unroutable)) AS unroutable
              FROM own.outbox WHERE confirmed_at IS NULL
            """,
            unroutable=UNROUTABLE,
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
