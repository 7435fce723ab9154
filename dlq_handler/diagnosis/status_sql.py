"""Statements of a view: executions that dlq-handler ended, requests and events that wait, unusable dead letters.

The leader runs them every few seconds, so each is one statement that uses an index. Dead letters are read from the
counts by minute, an hour of them at most, and never from the records; requests and events from the rows that wait; ends
by the timeout monitor from its decisions of an hour. Spans begin with a whole minute. Shadow mode counts in none.
"""

from dataclasses import dataclass

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.groups_sql import REJECTED_REQUEST
from dlq_handler.dead_letters.records_sql import for_people
from dlq_handler.diagnosis.view import AttuneMonitorFact, LettersFact, OutboxFact
from dlq_handler.host.names import DISPATCH_MESSAGE_TYPE
from dlq_handler.host.unpublished_sql import count_monitor_ends
from dlq_handler.timeouts.decision import ENDS

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
    """A worker that is missing from the answer lost nothing. A dead letter belongs to the worker of its queue."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT worker_id, sum(ended) AS ended, sum(expired) AS expired
              FROM (SELECT g.worker_id, sum(m.failed) AS ended,
                           coalesce(sum(m.letters) FILTER (
                               WHERE g.reason = 'expired' AND m.minute >= date_trunc(
                                     'minute', statement_timestamp() - make_interval(secs => :lately))), 0) AS expired
                      FROM own.letter_minute m JOIN own.letter_group g ON g.id = m.group_id
                     WHERE m.minute >= date_trunc('minute', statement_timestamp() - make_interval(secs => :hour))
                     GROUP BY g.worker_id
                    UNION ALL
                    SELECT worker_id, count(*), 0 FROM own.stale_decision
                     WHERE decided_at > statement_timestamp() - make_interval(secs => :hour) AND NOT is_shadow
                       AND outcome = ANY (CAST(:ends AS text[]))
                     GROUP BY worker_id) AS counted
             WHERE worker_id > 0 GROUP BY worker_id
            """,
            lately=LATELY_SECONDS,
            hour=HOUR_SECONDS,
            ends=list(ENDS),
        )
    return {
        row.worker_id: Harm(ended_last_hour=int(row.ended), expired_lately=int(row.expired)) for row in rows
    }


async def unusable_letters(database: Database, *, requests_queue: str) -> LettersFact:
    """Requests that the executor rejected from its `requests_queue` are no sender's fault: counted apart.
    A dead letter that was reprocessed and failed its execution after all is not unusable.
    """
    async with database.transaction() as tx:
        [row] = await tx.rows(
            f"""
            SELECT coalesce(sum(letters) FILTER (WHERE category = :unreadable AND is_late), 0) AS unreadable,
                   coalesce(sum(letters) FILTER (WHERE category = :unrelated AND is_late AND NOT is_declined), 0)
                       AS unrelated,
                   coalesce(sum(letters) FILTER (WHERE NOT is_late AND NOT is_declined), 0) AS before,
                   -- One record per execution, however often it was requested. The words of its index.
                   (SELECT count(*) FROM own.letter
                     WHERE {REJECTED_REQUEST}
                       AND greatest(received_at, repeated_at) >= statement_timestamp() - make_interval(secs => :span)
                       AND queue = :requests) AS declined,
                   min(first_at) FILTER (WHERE NOT is_declined) AS first_at
              FROM (SELECT g.category, m.letters - m.failed AS letters, greatest(m.minute, g.first_at) AS first_at,
                           coalesce(g.category = :unrelated AND g.reason = 'rejected' AND g.detail = :request
                                    AND g.queue = :requests, false) AS is_declined,
                           m.minute >= date_trunc('minute', statement_timestamp() - make_interval(secs => :span))
                           AS is_late
                      FROM own.letter_minute m JOIN own.letter_group g ON g.id = m.group_id
                     WHERE m.minute >= date_trunc('minute', statement_timestamp() - make_interval(secs => 2 * :span))
                       AND g.category IN (:unreadable, :unrelated) AND m.letters > m.failed) AS unusable
            """,  # noqa: S608  # constants
            unreadable=Category.UNREADABLE.value,
            unrelated=Category.UNRELATED.value,
            span=SPAN_SECONDS,
            requests=requests_queue,
            request=DISPATCH_MESSAGE_TYPE,
        )
    return LettersFact(
        span_seconds=SPAN_SECONDS,
        unreadable=int(row.unreadable),
        unrelated=int(row.unrelated),
        before=int(row.before),
        declined=int(row.declined),
        first_at=row.first_at,
    )


async def attune_monitor(database: Database, *, is_enabled: bool) -> AttuneMonitorFact:
    """`is_enabled`: by Attune's settings."""
    ended, first_at = await count_monitor_ends(database, within_seconds=HOUR_SECONDS)
    return AttuneMonitorFact(is_enabled=is_enabled, span_seconds=HOUR_SECONDS, ended=ended, first_at=first_at)


async def waiting_events(database: Database) -> OutboxFact:
    async with database.transaction() as tx:
        [row] = await tx.rows(
            """
            SELECT count(*) AS pending,
                   CAST(coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0) AS double precision)
                   AS oldest,
                   (SELECT concat_ws(': ', problem, last_error) FROM own.outbox
                     WHERE confirmed_at IS NULL AND last_error IS NOT NULL
                     ORDER BY next_attempt_at, id LIMIT 1) AS last_error
              FROM own.outbox WHERE confirmed_at IS NULL
            """
        )
    return OutboxFact(
        pending=row.pending, oldest_seconds=max(0.0, row.oldest), last_error=for_people(row)["last_error"]
    )
