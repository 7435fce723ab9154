"""Gather the facts about executions that may be stale: their workers' rows, looks and queues. Writes nothing, so that
whoever only wants an opinion gets exactly the facts that the monitor judges by.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dlq_handler.domain.publishes import PublishView
from dlq_handler.domain.stale_case import StaleCase, StalePolicy, WorkerView
from dlq_handler.domain.worker import QueueSight, Worker
from dlq_handler.domain.worker_look import WorkerLook, look_again
from dlq_handler.store import worker_looks
from dlq_handler.store.dead_letters import LockedView, read_workers
from dlq_handler.store.transaction import Transaction

Sights = Mapping[int, QueueSight | None]
"""By worker. None: no such queue; a worker that is missing could not be asked about."""


class Sight(Protocol):
    async def look(self, worker_ids: Collection[int]) -> Sights:
        """What the broker tells of these workers' queues."""

    async def longest_ttl_ms(self) -> int | None:
        """The longest TTL of any worker queue that was seen; None: none was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    cases: Sequence[StaleCase]
    new_looks: Mapping[int, WorkerLook]
    """To be kept by whoever judges by them."""


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
) -> Gathered:
    """`looks`: those that this sweep has taken already. A sweep looks once at each worker; a second look in the same
    sweep would be no second look. `is_shadow` tells whose earlier looks count.
    """
    executions = view.executions.values()
    worker_ids = {one.worker_id for one in executions if one.worker_id is not None}
    workers = await read_workers(tx, worker_ids) if worker_ids else {}
    unseen = worker_ids - looks.keys()
    before = await worker_looks.read_looks(tx, unseen, is_shadow=is_shadow) if unseen else {}
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
    cases = [
        StaleCase(
            execution=execution,
            worker=_worker_view(execution.worker_id, workers, known_looks, sights),
            now=view.now,
            watched_seconds=watched_seconds,
            steady_since=steady_since,
            longest_ttl_ms=longest_ttl_ms,
            publishes=publishes,
            intake_undrained_seconds=intake_undrained_seconds,
            policy=policy,
        )
        for execution in executions
    ]
    return Gathered(cases=cases, new_looks=new_looks)


def _worker_view(
    worker_id: int | None, workers: Mapping[int, Worker], looks: Mapping[int, WorkerLook], sights: Sights
) -> WorkerView:
    if worker_id is None:
        return WorkerView()
    return WorkerView(
        row=workers.get(worker_id),
        look=looks.get(worker_id),
        queue=sights.get(worker_id),
        is_queue_known=worker_id in sights,
    )
