"""Gather the facts about executions that may be stale: the rows, checks and queues of their workers. Writes nothing, so
that `executions explain` uses exactly the facts by which the monitor decides.
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
from dlq_handler.timeouts.case import StaleCase, StaleLimits, WorkerView
from dlq_handler.workers import worker_observations_sql
from dlq_handler.workers.worker_observation import WorkerObservation, observe_again
from dlq_handler.workers.worker_process import ProcessView

WorkerQueues = Mapping[int, QueueObservation | None]
"""By worker. None: the worker has no queue. A worker that is missing is unknown."""

Processes = Mapping[int, ProcessView]
"""By worker; of workers that run an execution which the present process is not known to have begun."""


class QueueObserver(Protocol):
    async def look(self, worker_ids: Collection[int]) -> WorkerQueues:
        """The queues of these workers, as the broker has them."""

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        """The longest TTL of any worker queue observed; 0: they have none; None: unknown.

        While it is unknown, the queues of these workers may be asked for theirs.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    cases: Sequence[StaleCase]
    new_looks: Mapping[int, WorkerObservation]
    """To be stored by a caller that decides by them."""


async def gather_cases(
    tx: Transaction,
    view: LockedView,
    *,
    queues: WorkerQueues,
    looks: Mapping[int, WorkerObservation],
    watched_seconds: float,
    steady_since: datetime | None,
    longest_ttl_ms: int | None,
    publishes: PublishView,
    limits: StaleLimits,
    is_shadow: bool,
    intake_undrained_seconds: float | None = None,
    processes: Processes | None = None,
) -> Gathered:
    """`looks`: the checks that this scan has made already. A scan checks each worker once; a second check in the same
    scan would confirm nothing. `is_shadow`: which earlier checks count.
    """
    executions, processes = view.executions.values(), processes or {}
    worker_ids = {one.worker_id for one in executions if one.worker_id is not None}
    workers = await read_workers(tx, worker_ids) if worker_ids else {}
    unchecked = worker_ids - looks.keys()
    before = (
        await worker_observations_sql.read_observations(tx, unchecked, is_shadow=is_shadow)
        if unchecked
        else {}
    )
    new_looks = {
        one: observe_again(
            one,
            before.get(one),
            worker=workers.get(one),
            queue=queues.get(one),
            is_queue_known=one in queues,
            now=view.now,
            watched_seconds=watched_seconds,
            availability=limits.availability,
            confirm_after_seconds=limits.monitor.confirm_after_seconds,
        )
        for one in unchecked
    }
    known_looks = {**looks, **new_looks}
    doubted = [
        one.id for one in executions if one.status is ExecutionStatus.RUNNING and one.worker_id in processes
    ]
    run_limits = await stale_sql.own_run_limits(tx, doubted) if doubted else {}
    cases = [
        StaleCase(
            execution=execution,
            worker=_worker_view(execution.worker_id, workers, known_looks, queues, processes),
            now=view.now,
            watched_seconds=watched_seconds,
            steady_since=steady_since,
            longest_ttl_ms=longest_ttl_ms,
            publishes=publishes,
            intake_undrained_seconds=intake_undrained_seconds,
            own_run_limit_seconds=run_limits.get(execution.id),
            limits=limits,
        )
        for execution in executions
    ]
    return Gathered(cases=cases, new_looks=new_looks)


def _worker_view(
    worker_id: int | None,
    workers: Mapping[int, Worker],
    looks: Mapping[int, WorkerObservation],
    queues: WorkerQueues,
    processes: Processes,
) -> WorkerView:
    if worker_id is None:
        return WorkerView()
    return WorkerView(
        row=workers.get(worker_id),
        look=looks.get(worker_id),
        queue=queues.get(worker_id),
        is_queue_known=worker_id in queues,
        process=processes.get(worker_id),
    )
