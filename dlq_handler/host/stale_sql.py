"""Find executions that may be stale: page by page along the host's own index on (status, updated), oldest first.

Promises: one scan meets each row at most once, because it goes by key and never beyond the moment it began; an idle
one costs the same however many executions there are. Finding locks nothing: who is found is locked by id afterwards,
in the one order that all our transactions keep.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.workflow_tasks_sql import OWN_RUN_LIMIT

# A row that was changed before this moment has no age that anything could be decided by. A scan must not begin with
# such rows either: those out of Python's range all read as one moment, and a page behind it would be the same again.
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

# Of execution `e`: the database refused to let it end as it is, and the next try is not due. With LIMIT 1 and not as
# EXISTS, which may be planned as a join of everything.
IS_REFUSED = """
    coalesce((SELECT true FROM own.stale_decision refused
               WHERE refused.execution_id = e.id AND refused.attempt_updated_at = e.updated
                 AND refused.outcome = 'update_failed' AND NOT refused.is_shadow
                 AND refused.next_attempt_at > statement_timestamp() LIMIT 1), false)
"""

# Who cannot be stale is passed over here already: to lock the executions of a live worker would hold that worker up.
_FILTERS = {
    ExecutionStatus.SCHEDULED: "",
    ExecutionStatus.RUNNING: "AND e.worker IS NOT NULL AND e.worker <> ALL (CAST(:spared AS bigint[]))",
    ExecutionStatus.CANCELING: "AND e.worker IS NOT NULL",
}

# Those that spare a worker do not spare the runs which a former process of it began, or may have begun.
_DOUBTED_RUNS = f"""
    AND e.worker IS NOT NULL AND (e.worker <> ALL (CAST(:spared AS bigint[])) OR EXISTS (
        SELECT FROM unnest(CAST(:doubted AS bigint[]), CAST(:gone_before AS timestamptz[]),
                           CAST(:known_from AS timestamptz[]), CAST(:shared_from AS timestamptz[]),
                           CAST(:shared_until AS timestamptz[]))
               AS process(worker, gone_before, known_from, shared_from, shared_until)
         WHERE process.worker = e.worker
           AND (e.updated < process.gone_before
                OR ((e.updated < coalesce(process.known_from, 'infinity')
                     OR (e.updated > process.shared_from AND e.updated < process.shared_until))
                    AND e.updated <= clock_timestamp() - make_interval(
                        secs => :grace_seconds + coalesce({OWN_RUN_LIMIT}, :run_limit_seconds))))))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtedProcess:
    """Which runs of a worker its present process may not have begun, by the last change of their rows."""

    gone_before: datetime | None
    """A process that is gone began every run before this time. None: unknown of any run."""
    known_from: datetime | None
    """The present process is not known to have begun any run before this time. None: nor any after it."""
    shared_from: datetime | None
    shared_until: datetime | None
    """Between these times, other processes consumed beside it. None: they never did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtedRuns:
    """Workers that are spared, but not all of what they run."""

    processes: Mapping[int, DoubtedProcess]
    """By worker."""
    run_limit_seconds: float
    grace_seconds: float
    """Beyond the limit of a run: for its worker to end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """As it was found, without a lock: to be decided only once it is locked."""

    id: int
    updated: datetime
    worker_id: int | None


async def page(
    tx: Transaction,
    status: ExecutionStatus,
    *,
    not_after: datetime,
    behind: Candidate | None,
    limit: int,
    spared: Collection[int] = (),
    doubted: DoubtedRuns | None = None,
) -> list[Candidate]:
    """The next candidates behind one of the page before, or the oldest ones.

    `spared` are workers whose running executions are not looked at. Those that the database refused to let end are
    left out until they are due again.
    """
    given: dict[str, object] = {}
    condition = _FILTERS[status]
    if status is ExecutionStatus.RUNNING:
        given["spared"] = sorted(spared)
        if doubted is not None and doubted.processes:
            condition = _DOUBTED_RUNS
            given |= _doubts(doubted)
    # By statistics that are minutes old there may be so few that to read and sort them all looks cheap. In a flood that
    # would be done anew for every page; along the index a page costs what it holds.
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
        """,  # noqa: S608  # a member of our own enum
        not_after=not_after,
        updated=behind.updated if behind else _BEGINNING,
        id=behind.id if behind else -1,
        limit=limit,
        **given,
    )
    return [Candidate(id=row.id, updated=row.updated, worker_id=row.worker_id) for row in rows]


def _doubts(doubted: DoubtedRuns) -> dict[str, object]:
    processes = doubted.processes
    return {
        "doubted": list(processes),
        "gone_before": [process.gone_before for process in processes.values()],
        "known_from": [process.known_from for process in processes.values()],
        "shared_from": [process.shared_from for process in processes.values()],
        "shared_until": [process.shared_until for process in processes.values()],
        "grace_seconds": float(doubted.grace_seconds),
        "run_limit_seconds": float(doubted.run_limit_seconds),
    }


async def own_run_limits(tx: Transaction, execution_ids: Collection[int]) -> dict[int, float]:
    """Seconds after which the host ends a run, of those that have a limit of their own."""
    rows = await tx.rows(
        f"""
        SELECT id, seconds FROM (
            SELECT e.id, {OWN_RUN_LIMIT} AS seconds FROM execution e WHERE e.id = ANY (CAST(:ids AS bigint[]))
        ) AS own_limit WHERE seconds IS NOT NULL
        """,  # noqa: S608  # our own text throughout
        ids=sorted(execution_ids),
    )
    return {row.id: row.seconds for row in rows}
