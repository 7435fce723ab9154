"""Decisions about executions that no dead letter reports, written with the change read for `executions explain`; and
the intervals in which the queue of completion events had no consumer.

An interval is what the checks have shown, by the database's clock: from after the first check without a consumer to
before the last one. Times between two checks that are far apart, and the edges, are in no interval: what happened there
is unknown.
"""

from collections.abc import Sequence
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.database.expiry_sql import MayGoOn, always, delete_in_batches
from dlq_handler.database.postgres_values import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.records_sql import for_people
from dlq_handler.host.ends import UnconsumedInterval
from dlq_handler.text import storable
from dlq_handler.timeouts.decision import REPEATABLE, RESOLVED, StaleOutcome, StaleRecord


async def record(tx: Transaction, records: Sequence[StaleRecord]) -> set[int]:
    """Record decisions, each once per attempt and outcome. A refusal or a repeated request that is on record already is
    updated. Returns the executions of those that were written.
    """
    if not records:
        return set()
    ordered = sorted(records, key=lambda one: (one.execution_id, one.attempt_updated_at, one.outcome))
    rows = await tx.rows(
        """
        INSERT INTO own.stale_decision AS known (
            execution_id, attempt_updated_at, original_status, outcome, worker_id, explanation, evidence, error,
            attempts, next_attempt_at, is_shadow, decided_at, replica)
        SELECT * FROM unnest(
            CAST(:execution_id AS bigint[]), CAST(:attempt_updated_at AS timestamptz[]),
            CAST(:original_status AS text[]), CAST(:outcome AS text[]), CAST(:worker_id AS bigint[]),
            CAST(:explanation AS text[]), CAST(:evidence AS jsonb[]), CAST(:error AS text[]),
            CAST(:attempts AS integer[]), CAST(:next_attempt_at AS timestamptz[]), CAST(:is_shadow AS boolean[]),
            CAST(:decided_at AS timestamptz[]), CAST(:replica AS text[]))
        ON CONFLICT (execution_id, attempt_updated_at, outcome, is_shadow) DO UPDATE
           SET error = excluded.error, attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at,
               decided_at = excluded.decided_at, replica = excluded.replica, explanation = excluded.explanation,
               evidence = excluded.evidence
         WHERE known.outcome = ANY (CAST(:repeatable AS text[]))
        RETURNING execution_id
        """,
        execution_id=[one.execution_id for one in ordered],
        attempt_updated_at=[one.attempt_updated_at for one in ordered],
        original_status=[one.original_status for one in ordered],
        outcome=[one.outcome.value for one in ordered],
        worker_id=[one.worker_id for one in ordered],
        explanation=[storable(one.explanation) for one in ordered],
        evidence=[as_jsonb(one.evidence) for one in ordered],
        error=[None if one.error is None else storable(one.error) for one in ordered],
        attempts=[one.attempts for one in ordered],
        next_attempt_at=[one.next_attempt_at for one in ordered],
        is_shadow=[one.is_shadow for one in ordered],
        decided_at=[one.decided_at for one in ordered],
        replica=[storable(one.replica) for one in ordered],
        repeatable=list(REPEATABLE),
    )
    return {row.execution_id for row in rows}


async def refusals(tx: Transaction, execution_id: int, attempt_updated_at: datetime) -> int:
    """How often the database refused to let this attempt end."""
    row = await tx.row(
        """
        SELECT attempts FROM own.stale_decision
         WHERE execution_id = :execution_id AND attempt_updated_at = :attempt_updated_at
           AND outcome = 'update_failed' AND NOT is_shadow
        """,
        execution_id=execution_id,
        attempt_updated_at=attempt_updated_at,
    )
    return row.attempts if row is not None else 0


async def of_execution(database: Database, execution_id: int) -> list[StaleRecord]:
    """Every decision about it, oldest first, for people."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            """
            SELECT execution_id, attempt_updated_at, original_status, outcome, worker_id, explanation, evidence, error,
                   attempts, next_attempt_at, is_shadow, decided_at, replica
              FROM own.stale_decision WHERE execution_id = :execution_id ORDER BY decided_at, id
            """,
            execution_id=execution_id,
        )
    return [StaleRecord(**{**for_people(row), "outcome": StaleOutcome(row.outcome)}) for row in rows]


async def count_reverted_by_worker(database: Database) -> dict[int, int]:
    """The number of executions that each worker brought back after dlq-handler had ended them."""
    async with database.transaction() as tx:
        table = await tx.row("SELECT to_regclass('own.stale_decision') IS NOT NULL AS is_there")
        if table is None or not table.is_there:
            # Before the first migration there is no table.
            return {}
        rows = await tx.rows(
            """
            SELECT worker_id, count(*) AS executions FROM own.stale_decision
             WHERE outcome = 'reverted_by_worker' AND worker_id IS NOT NULL GROUP BY worker_id
            """
        )
    return {row.worker_id: row.executions for row in rows}


async def delete_decisions(
    database: Database,
    *,
    resolved_seconds: float,
    unresolved_seconds: float,
    may_go_on: MayGoOn = always,
) -> int:
    """Delete old ones. Returns their number."""
    return await delete_in_batches(
        database,
        "stale_decision",
        """
        decided_at < now() - make_interval(secs => :first)
        AND decided_at < now() - make_interval(secs =>
              CASE WHEN outcome = ANY (CAST(:outcomes AS text[])) OR is_shadow
                   THEN CAST(:resolved AS double precision)
                   ELSE CAST(:unresolved AS double precision) END)
        """,
        may_go_on=may_go_on,
        # The part of the condition that the index can use.
        first=float(min(resolved_seconds, unresolved_seconds)),
        resolved=float(resolved_seconds),
        unresolved=float(unresolved_seconds),
        outcomes=list(RESOLVED),
    )


async def extend_interval(tx: Transaction, *, asked_at: datetime, longest_gap_seconds: float) -> None:
    """Extend the interval of the last check, or begin one. `asked_at`: the clock before this check."""
    extended = await tx.row(
        """
        UPDATE own.unconsumed_interval SET last_observed_at = greatest(last_observed_at, CAST(:asked_at AS timestamptz))
         WHERE id = (SELECT id FROM own.unconsumed_interval
                      WHERE is_open AND last_observed_at >= CAST(:asked_at AS timestamptz) - make_interval(secs => :gap)
                      ORDER BY last_observed_at DESC LIMIT 1)
        RETURNING id
        """,
        asked_at=asked_at,
        gap=float(longest_gap_seconds),
    )
    if extended is None:
        await tx.run(
            """
            INSERT INTO own.unconsumed_interval (began_at, last_observed_at, is_open)
            SELECT now, now, true FROM clock_timestamp() AS now
            """
        )


async def close_interval(tx: Transaction) -> None:
    """A consumer is back: the next check without a consumer begins another interval."""
    await tx.run("UPDATE own.unconsumed_interval SET is_open = false WHERE is_open")


async def intervals_after(tx: Transaction, moment: datetime | None) -> Sequence[UnconsumedInterval]:
    """Those that ended after `moment`, in order of their ends; None: all on record."""
    rows = await tx.rows(
        """
        SELECT began_at, last_observed_at FROM own.unconsumed_interval
         WHERE last_observed_at > coalesce(CAST(:moment AS timestamptz), '-infinity') AND last_observed_at > began_at
         ORDER BY last_observed_at
        """,
        moment=moment,
    )
    return [UnconsumedInterval(began_at=row.began_at, last_observed_at=row.last_observed_at) for row in rows]


async def delete_intervals(database: Database, *, older_than_seconds: float) -> int:
    """Delete intervals that ended that long ago. Returns their number."""
    async with database.transaction() as tx:
        result = await tx.run(
            "DELETE FROM own.unconsumed_interval WHERE last_observed_at < now() - make_interval(secs => :age)",
            age=float(older_than_seconds),
        )
    return result.rowcount
