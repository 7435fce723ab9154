"""What the stop of a worker's queues needs to know of the worker. Read only."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.database.postgres_values import age_seconds, readable
from dlq_handler.database.transaction import Transaction
from dlq_handler.host.execution import TERMINAL, ExecutionStatus
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerStatus

_TERMINAL = sorted(status.value for status in TERMINAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowWorker:
    worker: Worker
    is_cordoned: bool
    """Also true on a host that knows no cordon: there, none is missing."""
    open_executions: int
    """Not final, and their dispatch may have been in the worker's own queue."""


async def read_flow_worker(
    tx: Transaction, worker_id: int, *, rerouted_at: datetime | None
) -> FlowWorker | None:
    """None: it has no row.

    `rerouted_at`: since then dispatches go to the retired queue only. An execution that was scheduled later does not
    need the worker's own queue, and is decided only after that queue is gone.
    """
    row = await tx.row(
        f"""
        SELECT w.id, CAST(w.status AS text) AS status, {readable("w.last_heartbeat")} AS last_heartbeat,
               {age_seconds("w.last_heartbeat")} AS age,
               coalesce(to_jsonb(w) ->> 'cordoned', 'true') = 'true' AS is_cordoned,
               (SELECT count(*) FROM execution e
                 WHERE e.worker = w.id AND CAST(e.status AS text) <> ALL (CAST(:terminal AS text[]))
                   AND (CAST(e.status AS text) <> :scheduled
                        OR coalesce(e.updated <= CAST(:rerouted_at AS timestamptz), true))) AS open_executions
          FROM worker w WHERE w.id = :id
        """,  # noqa: S608  # constant
        id=worker_id,
        terminal=_TERMINAL,
        scheduled=ExecutionStatus.SCHEDULED,
        rerouted_at=rerouted_at,
    )
    if row is None:
        return None
    return FlowWorker(
        worker=Worker(
            id=row.id, heartbeat_age_seconds=row.age, last_heartbeat=row.last_heartbeat, status=row.status
        ),
        is_cordoned=row.is_cordoned,
        open_executions=row.open_executions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    returned: frozenset[int]
    gone: frozenset[int]
    """They have no row any more."""


async def read_returns(tx: Transaction, ids: Collection[int], policy: AvailabilityPolicy) -> Returns:
    """Which of these workers have registered again (`has_returned`). There may be thousands: one answer for all."""
    if not ids:
        return Returns(returned=frozenset(), gone=frozenset())
    [row] = await tx.rows(
        f"""
        SELECT coalesce(array_agg(w.id), '{{}}') AS present,
               coalesce(array_agg(w.id) FILTER (WHERE CAST(w.status AS text) <> :inactive
                                                  AND {age_seconds("w.last_heartbeat")} <= :limit), '{{}}') AS returned
          FROM worker w WHERE w.id = ANY (CAST(:ids AS bigint[]))
        """,  # noqa: S608  # constant
        ids=sorted(ids),
        inactive=WorkerStatus.INACTIVE,
        limit=float(policy.unavailable_after_seconds),
    )
    return Returns(returned=frozenset(row.returned), gone=frozenset(ids) - frozenset(row.present))
