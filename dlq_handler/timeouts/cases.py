"""Gather the facts about executions that may be stale: their workers' rows, looks and queues. Writes nothing, so that
whoever only wants an opinion gets exactly the facts that the monitor decides by.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dlq_handler.broker.publish.publishes import PublishView
from dlq_handler.database.transaction import Transaction
from dlq_handler.host import stale_sql
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.executions_sql import LockedView
from dlq_handler.host.worker import QueueObservation, Worker
from dlq_handler.host.workers_sql import read_workers
from dlq_handler.timeouts.case import StaleCase, StalePolicy, WorkerView
from dlq_handler.workers import looks_sql
from dlq_handler.workers.connection import ProcessView
from dlq_handler.workers.look import WorkerLook, look_again

Sights = Mapping[int, QueueObservation | None]
"""By worker. None: no such queue; a worker that is missing could not be asked about."""

Processes = Mapping[int, ProcessView]
"""By worker; of those that run something which the present process is not known to have begun."""


class Sight(Protocol):
    async def look(self, worker_ids: Collection[int]) -> Sights:
        """What the broker tells of these workers' queues."""

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        """The longest TTL of any worker queue that was seen; 0: they have none; None: unknown.

        While it is unknown, the queues of these workers may be asked for theirs.
        """


class MonitorObservation(Sight, Protocol):
    async def look_quietly(self, worker_ids: Collection[int]) -> Sights:
        """The same without questions that the broker refuses. A queue may have been missing for minutes, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    cases: Sequence[StaleCase]
    new_looks: Mapping[int, WorkerLook]
    """To be kept by whoever decides by them."""


async def gather_cases(
    tx: Transaction,
    view: LockedView,
    *,
    sights: Sights,
    looks: Mapping[int, WorkerLook],
    watched_seconds: float,
    steady_since: datetime | None,
    longest_ttl_ms: int | None,
    publishes: PublishView,
    policy: StalePolicy,
    is_shadow: bool,
    intake_undrained_seconds: float | None = None,
    processes: Processes | None = None,
) -> Gathered:
    """`looks`: those that this scan has taken already. A scan looks once at each worker; a second look in the same
    scan would be no second look. `is_shadow` tells whose earlier looks count.
    """
    executions, processes = view.executions.values(), processes or {}
    worker_ids = {one.worker_id for one in executions if one.worker_id is not None}
    workers = await read_workers(tx, worker_ids) if worker_ids else {}
    unseen = worker_ids - looks.keys()
    before = await looks_sql.read_looks(tx, unseen, is_shadow=is_shadow) if unseen else {}
    new_looks = {
        one: look_again(
            one,
            before.get(one),
            worker=workers.get(one),
            queue=sights.get(one),
            is_queue_known=one in sights,
            now=view.now,
            watched_seconds=watched_seconds,
            availability=policy.availability,
            confirm_after_seconds=policy.confirm_after_seconds,
        )
        for one in unseen
    }
    known_looks = {**looks, **new_looks}
    doubted = [
        one.id for one in executions if one.status is ExecutionStatus.RUNNING and one.worker_id in processes
    ]
    run_limits = await stale_sql.own_run_limits(tx, doubted) if doubted else {}
    cases = [
        StaleCase(
            execution=execution,
            worker=_worker_view(execution.worker_id, workers, known_looks, sights, processes),
            now=view.now,
            watched_seconds=watched_seconds,
            steady_since=steady_since,
            longest_ttl_ms=longest_ttl_ms,
            publishes=publishes,
            intake_undrained_seconds=intake_undrained_seconds,
            own_run_limit_seconds=run_limits.get(execution.id),
            policy=policy,
        )
        for execution in executions
    ]
    return Gathered(cases=cases, new_looks=new_looks)


def _worker_view(
    worker_id: int | None,
    workers: Mapping[int, Worker],
    looks: Mapping[int, WorkerLook],
    sights: Sights,
    processes: Processes,
) -> WorkerView:
    if worker_id is None:
        return WorkerView()
    return WorkerView(
        row=workers.get(worker_id),
        look=looks.get(worker_id),
        queue=sights.get(worker_id),
        is_queue_known=worker_id in sights,
        process=processes.get(worker_id),
    )
