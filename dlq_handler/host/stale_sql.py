"""Find executions that may be stale: batch by batch along the host's own index on (status, updated), oldest first.

Promises: one scan reads each row at most once, because it goes by key and never beyond the moment it began. An idle
scan costs the same however many executions there are. Nothing is locked here: candidates are locked by id afterwards,
in the lock order of the ending transaction.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.executions_sql import OWN_RUN_LIMIT

# The age of a row that was changed before this moment decides nothing. A scan must not begin with such rows either:
# those out of Python's range all read as one moment, and the batch behind it would be the same again.
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

# Of execution `e`: the database refused to let it end as it is, and the next attempt is not due. With LIMIT 1 and not
# as EXISTS, which may be planned as a join of everything.
IS_REFUSED = """
    coalesce((SELECT true FROM own.stale_decision refused
               WHERE refused.execution_id = e.id AND refused.attempt_updated_at = e.updated
                 AND refused.outcome = 'update_failed' AND NOT refused.is_shadow
                 AND refused.next_attempt_at > statement_timestamp() LIMIT 1), false)
"""

# Executions that cannot be stale are left out here: to lock those of a live worker would delay that worker.
_FILTERS = {
    ExecutionStatus.SCHEDULED: "",
    ExecutionStatus.RUNNING: "AND e.worker IS NOT NULL AND e.worker <> ALL (CAST(:available AS bigint[]))",
    ExecutionStatus.CANCELING: "AND e.worker IS NOT NULL",
}

# Of an available worker only the runs that a former process of it began, or may have begun.
_UNCERTAIN_RUNS = f"""
    AND e.worker IS NOT NULL AND (e.worker <> ALL (CAST(:available AS bigint[])) OR EXISTS (
        SELECT FROM unnest(CAST(:workers AS bigint[]), CAST(:former_until AS timestamptz[]),
                           CAST(:known_from AS timestamptz[]), CAST(:shared_from AS timestamptz[]),
                           CAST(:shared_until AS timestamptz[]))
               AS process(worker, former_until, known_from, shared_from, shared_until)
         WHERE process.worker = e.worker
           AND (e.updated < process.former_until
                OR ((e.updated < coalesce(process.known_from, 'infinity')
                     OR (e.updated > process.shared_from AND e.updated < process.shared_until))
                    AND e.updated <= clock_timestamp() - make_interval(
                        secs => :grace_seconds + coalesce({OWN_RUN_LIMIT}, :run_limit_seconds))))))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainProcess:
    """Which runs of a worker its present process may not have begun, by the last change of their rows."""

    former_until: datetime | None
    """A process that has ended began every run before this time. None: unknown of any run."""
    known_from: datetime | None
    """The present process is not known to have begun any run before this time. None: nor any after it."""
    shared_from: datetime | None
    shared_until: datetime | None
    """Between these times, other processes consumed beside it. None: they never did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """As it was found, without a lock: to be decided only once it is locked."""

    id: int
    updated: datetime
    worker_id: int | None


async def find_candidates(
    tx: Transaction,
    status: ExecutionStatus,
    *,
    not_after: datetime,
    behind: Candidate | None,
    limit: int,
    available: Collection[int] = (),
    processes: Mapping[int, UncertainProcess] | None = None,
    run_limit_seconds: float = 0.0,
    grace_seconds: float = 0.0,
) -> list[Candidate]:
    """The next candidates behind one of the batch before, or the oldest ones.

    `available`: workers whose running executions are left out, but for those that a former process may have begun
    (`processes`, by worker; `run_limit_seconds` and `grace_seconds`: when the host has ended a run). Executions that
    the database refused to let end are left out until their next attempt is due.
    """
    given: dict[str, object] = {}
    condition = _FILTERS[status]
    if status is ExecutionStatus.RUNNING:
        given["available"] = sorted(available)
        if processes:
            condition = _UNCERTAIN_RUNS
            given |= {
                "workers": list(processes),
                "former_until": [process.former_until for process in processes.values()],
                "known_from": [process.known_from for process in processes.values()],
                "shared_from": [process.shared_from for process in processes.values()],
                "shared_until": [process.shared_until for process in processes.values()],
                "grace_seconds": float(grace_seconds),
                "run_limit_seconds": float(run_limit_seconds),
            }
    # By statistics that are minutes old there may be so few that to read and sort them all seems cheap. In a flood that
    # would be done again for every batch; along the index a batch costs what it holds.
    await tx.run("SET LOCAL enable_sort = off")
    # A bare literal, because the enum's name is the host's own business, and compared as text no index would serve.
    rows = await tx.rows(
        f"""
        SELECT e.id, e.updated, e.worker AS worker_id FROM execution e
         WHERE e.status = '{status.value}' AND e.updated <= :not_after
           AND e.updated >= :updated AND (e.updated, e.id) > (:updated, CAST(:id AS bigint))
           {condition}
           AND NOT {IS_REFUSED}
         ORDER BY e.updated, e.id LIMIT :limit
        """,  # noqa: S608  # a member of an own enum
        not_after=not_after,
        updated=behind.updated if behind else _BEGINNING,
        id=behind.id if behind else -1,
        limit=limit,
        **given,
    )
    return [Candidate(id=row.id, updated=row.updated, worker_id=row.worker_id) for row in rows]


async def own_run_limits(tx: Transaction, execution_ids: Collection[int]) -> dict[int, float]:
    """Seconds after which the host ends a run, of those that have a limit of their own."""
    rows = await tx.rows(
        f"""
        SELECT id, seconds FROM (
            SELECT e.id, {OWN_RUN_LIMIT} AS seconds FROM execution e WHERE e.id = ANY (CAST(:ids AS bigint[]))
        ) AS own_limit WHERE seconds IS NOT NULL
        """,  # noqa: S608  # constant text
        ids=sorted(execution_ids),
    )
    return {row.id: row.seconds for row in rows}
