"""What a status asks of the tables: whose executions we ended, what waits, which letters are of no use to anybody.

Each question is one statement over one hour at most, found by index. Game days and shadows count in none.
"""

from dataclasses import dataclass

from dlq_handler.domain.dead_letter import DISPATCH_MESSAGE_TYPE
from dlq_handler.domain.verdict import Outcome
from dlq_handler.domain.view import LettersSeen, OutboxSeen
from dlq_handler.store.engine import Database
from dlq_handler.store.for_people import for_people

HOUR_SECONDS = 3600.0
LATELY_SECONDS = 300.0
SPAN_SECONDS = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """What became of one worker's executions."""

    ended_last_hour: int | None = 0
    """None: unknown."""
    expired_lately: int = 0


async def harm_by_worker(database: Database) -> dict[int, Harm]:
    """A worker that is missing from the answer lost nothing."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT worker_id, sum(ended) AS ended, sum(expired) AS expired
              FROM (SELECT worker_id, count(*) FILTER (WHERE outcome = :failed) AS ended,
                           count(*) FILTER (WHERE reason = 'expired' AND received_at
                                            > statement_timestamp() - make_interval(secs => :lately)) AS expired
                      FROM own.letter
                     WHERE received_at > statement_timestamp() - make_interval(secs => :hour) AND NOT is_shadow
                     GROUP BY worker_id
                    UNION ALL
                    SELECT worker_id, count(*), 0 FROM own.stale_verdict
                     WHERE decided_at > statement_timestamp() - make_interval(secs => :hour) AND NOT is_shadow
                       AND outcome IN ('failed', 'abandoned', 'cancelled')
                     GROUP BY worker_id) AS counted
             WHERE worker_id > 0 GROUP BY worker_id
            """,
            failed=Outcome.FAILED.value,
            lately=LATELY_SECONDS,
            hour=HOUR_SECONDS,
        )
    return {
        row.worker_id: Harm(ended_last_hour=int(row.ended), expired_lately=int(row.expired)) for row in rows
    }


async def requested_executions(database: Database) -> int:
    """Those that no worker has been given yet, for whatever reason."""
    async with database.transaction() as tx:
        [row] = await tx.rows("SELECT count(*) AS requested FROM execution WHERE status = 'requested'")
    return int(row.requested)


async def unusable_letters(database: Database, *, requests_queue: str) -> LettersSeen:
    """What the executor rejected from its `requests_queue` is no sender's fault, and counted apart."""
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT count(*) FILTER (WHERE outcome = :unreadable AND age <= :span) AS unreadable,
                   count(*) FILTER (WHERE outcome = :foreign AND age <= :span AND NOT is_declined) AS foreign,
                   count(*) FILTER (WHERE age > :span AND age <= 2 * :span AND NOT is_declined) AS before,
                   count(*) FILTER (WHERE age <= :span AND is_declined) AS declined,
                   min(received_at) FILTER (WHERE NOT is_declined) AS first_at
              FROM (SELECT outcome, received_at,
                           coalesce(outcome = :foreign AND reason = 'rejected' AND message_type = :request
                                    AND first_death_queue = :requests, false) AS is_declined,
                           CAST(extract(epoch FROM statement_timestamp() - received_at) AS double precision) AS age
                      FROM own.letter
                     WHERE outcome IN (:unreadable, :foreign) AND NOT is_shadow
                       AND received_at > statement_timestamp() - interval '1 day') AS unusable
            """,
            unreadable=Outcome.UNREADABLE.value,
            foreign=Outcome.FOREIGN.value,
            span=SPAN_SECONDS,
            requests=requests_queue,
            request=DISPATCH_MESSAGE_TYPE,
        )
    return LettersSeen(
        span_seconds=SPAN_SECONDS,
        unreadable=row.unreadable,
        foreign=row.foreign,
        before=row.before,
        declined=row.declined,
        first_at=row.first_at,
    )


async def waiting_notices(database: Database) -> OutboxSeen:
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT count(*) AS pending,
                   CAST(coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0) AS double precision)
                   AS oldest,
                   (SELECT last_error FROM own.outbox
                     WHERE confirmed_at IS NULL AND last_error IS NOT NULL ORDER BY id LIMIT 1) AS last_error
              FROM own.outbox WHERE confirmed_at IS NULL
            """
        )
    return OutboxSeen(
        pending=row.pending, oldest_seconds=max(0.0, row.oldest), last_error=for_people(row)["last_error"]
    )
