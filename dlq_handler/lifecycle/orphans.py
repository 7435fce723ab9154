"""Decide which workers' queues are orphans: left behind by a worker that is gone, and needed by no execution. Pure.

The queues of one worker are retired together, so the decision is about the worker. Unknown is never a reason to retire:
whatever could not be read is a reason why not.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dlq_handler.host.owners import owning_worker
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames, is_unavailable
from dlq_handler.text import in_units


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedQueue:
    """A queue of the broker; None: the broker did not say."""

    name: str
    consumers: int | None
    ready: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFacts:
    """What was read about the worker of one or more queues."""

    worker_id: int
    queues: tuple[CountedQueue, ...]
    worker: Worker | None
    """None: it has no row. Ids of workers are never used again."""
    has_open_executions: bool
    live_flow: str | None = None
    """The flow that has one of these queues, unless it is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQueues:
    """The queues of one worker, and whether they are orphans."""

    worker_id: int
    queues: tuple[CountedQueue, ...]
    why: str
    """Why they seem to be orphans: what is known of the worker."""
    why_not: tuple[str, ...]
    """Every reason why they may not be retired. Empty: they are orphans."""

    @property
    def is_orphan(self) -> bool:
        return not self.why_not

    @property
    def queue_names(self) -> tuple[str, ...]:
        return tuple(queue.name for queue in self.queues)

    @property
    def ready(self) -> int | None:
        """Messages in all of them; None: unknown."""
        counts = [queue.ready for queue in self.queues]
        return None if None in counts else sum(count for count in counts if count is not None)


def by_worker(
    queues: Collection[CountedQueue], names: WorkerQueueNames
) -> Mapping[int, tuple[CountedQueue, ...]]:
    """The workers' queues among these, by the worker's id and in the order of their names."""
    found: dict[int, list[CountedQueue]] = {}
    for queue in sorted(queues, key=lambda one: one.name):
        worker_id = owning_worker(queue.name, names)
        if worker_id is not None:
            found.setdefault(worker_id, []).append(queue)
    return {worker_id: tuple(found[worker_id]) for worker_id in sorted(found)}


def facts_of(
    queues: Mapping[int, tuple[CountedQueue, ...]],
    *,
    workers: Mapping[int, Worker],
    with_open_executions: AbstractSet[int],
    live_flows: Mapping[str, str],
) -> list[OrphanFacts]:
    """`live_flows`: flow by the name of each queue of a flow that is not stopped."""
    return [
        OrphanFacts(
            worker_id=worker_id,
            queues=owned,
            worker=workers.get(worker_id),
            has_open_executions=worker_id in with_open_executions,
            live_flow=next((live_flows[queue.name] for queue in owned if queue.name in live_flows), None),
        )
        for worker_id, owned in queues.items()
    ]


def decide_orphan(
    facts: OrphanFacts, *, after_seconds: float, link_age_seconds: float, policy: AvailabilityPolicy
) -> WorkerQueues:
    """`after_seconds`: the age of a heartbeat from which the worker counts as gone."""
    return WorkerQueues(
        worker_id=facts.worker_id,
        queues=facts.queues,
        why=_about_worker(facts.worker),
        why_not=tuple(_reasons(facts, after_seconds, link_age_seconds, policy)),
    )


def _about_worker(worker: Worker | None) -> str:
    if worker is None:
        return "the worker has no row"
    if worker.heartbeat_age_seconds is None:
        return "the last heartbeat of the worker is unknown"
    return f"the last heartbeat of the worker is {in_units(max(0.0, worker.heartbeat_age_seconds))} old"


def _reasons(
    facts: OrphanFacts, after_seconds: float, link_age_seconds: float, policy: AvailabilityPolicy
) -> Sequence[str]:
    reasons: list[str] = []
    if facts.worker is not None:
        reasons += _of_worker(facts.worker, after_seconds, link_age_seconds, policy)
    for queue in facts.queues:
        if queue.consumers is None:
            reasons.append(f"the consumers of {queue.name} are unknown")
        elif queue.consumers > 0:
            reasons.append(f"{queue.name} has {queue.consumers} consumer(s)")
    if facts.has_open_executions:
        reasons.append(f"worker {facts.worker_id} has executions that are not final")
    if facts.live_flow is not None:
        reasons.append(f"flow {facts.live_flow!r} has these queues")
    return reasons


def _of_worker(
    worker: Worker, after_seconds: float, link_age_seconds: float, policy: AvailabilityPolicy
) -> Sequence[str]:
    age = worker.heartbeat_age_seconds
    if age is None:
        return ["the last heartbeat of the worker is unknown"]
    if age <= after_seconds:
        return [f"the last heartbeat of the worker is no more than {in_units(after_seconds)} old"]
    if not is_unavailable(worker, link_age_seconds=link_age_seconds, policy=policy):
        # After an outage of the database every heartbeat is old.
        return [
            "this replica has not been connected to the database for long enough to trust an old heartbeat"
        ]
    return []
