"""A flow: the record of queues that belong together, and what was observed of them. Values only.

A retirement is the record of a worker's queues that no flow started: it is only ever stopped.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from dlq_handler.lifecycle.flow_blueprint import FlowQueue


class FlowKind(StrEnum):
    FLOW = "flow"
    RETIREMENT = "retirement"


class FlowStatus(StrEnum):
    STARTING = "starting"
    ACTIVE = "active"
    STOPPING = "stopping"
    STOPPED = "stopped"

    @property
    def is_live(self) -> bool:
        """Its queues belong to it, and to no other flow."""
        return self is not FlowStatus.STOPPED


class StopStep(StrEnum):
    """The steps of a stop, in their order. A step is on record before it is taken."""

    SIGNALLED = "signalled"
    """The worker is cordoned, so that it gets no new dispatches."""
    IDLE = "idle"
    """No queue has a consumer, and the worker has stopped."""
    REROUTED = "rerouted"
    """The retired queue is bound with the flow's keys; after that they are unbound from its queues."""
    DRAINED = "drained"
    """What was left in the queues is decided or archived."""
    DELETED = "deleted"
    STOPPED = "stopped"

    @property
    def number(self) -> int:
        return _STEPS.index(self)


_STEPS = tuple(StopStep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    id: str
    kind: FlowKind
    blueprint: str
    params: Mapping[str, str]
    status: FlowStatus
    step: StopStep | None
    """Of a stop, and of one that has ended. None: the stop is wanted, and no step was taken."""
    version: int
    """Rises with each write."""
    worker_id: int | None
    queues: tuple[FlowQueue, ...]
    since: datetime
    """When it got its status."""
    step_since: datetime
    shared: tuple[FlowQueue, ...] = ()
    made: Collection[str] = ()
    """Queues that did not exist when the start began: a rollback deletes these."""
    has_cordoned: bool = False
    """The stop cordoned the worker. A worker that someone else cordoned stays cordoned."""
    idle_heartbeat: datetime | None = None
    """The worker's heartbeat when the stop found it idle. A newer one shows that the worker has returned."""
    is_retired_bound: bool = False
    """Its keys lead to the retired queue."""
    rerouted_at: datetime | None = None
    """When its keys were unbound from its queues."""
    aborted_at: datetime | None = None
    """When the worker's return ended a stop."""
    delete_attempts: int = 0
    next_attempt_at: datetime | None = None
    leaked: tuple[str, ...] = ()
    """Queues that could not be deleted."""
    archived: int = 0
    archived_beyond_limit: int = 0
    wanted_by: str = ""
    comment: str | None = None
    last_error: str | None = None
    last_lease: str | None = None
    """The process that began to act on it. None: it is a wish."""

    @property
    def queue_names(self) -> tuple[str, ...]:
        return tuple(queue.name for queue in self.queues)

    @property
    def own_topics(self) -> tuple[str, ...]:
        """They lead to its queues alone."""
        return tuple(topic for queue in self.queues for topic in queue.own_topics)

    def queue(self, name: str) -> FlowQueue:
        return next(queue for queue in self.queues if queue.name == name)

    def has_reached(self, step: StopStep) -> bool:
        return self.step is not None and self.step.number >= step.number


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowWorkerState:
    """The worker's row."""

    last_heartbeat: datetime | None
    has_stopped: bool
    """It set its status when it stopped, or it is known to be unavailable."""
    has_registered: bool
    """Its status is not inactive, and its heartbeat is fresh."""
    is_cordoned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedQueue:
    ready: int
    consumers: int
    unacked: int | None = None
    """What its consumers hold. None: unknown, because only the management API tells."""

    @property
    def is_empty(self) -> bool:
        return self.ready == 0 and not self.unacked


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowObservation:
    """What the leader observed for a flow, just before it acts."""

    worker: FlowWorkerState | None = None
    """None: the flow has no worker, or the worker has no row. Ids of workers are never used again."""
    queues: Mapping[str, ObservedQueue] = field(default_factory=dict)
    """The queues of the flow that exist."""
    open_executions: int = 0
    """Executions of the worker that are not final, and whose dispatches may have been in its own queue."""
    claimed: Collection[str] = ()
    """Queues of other live flows."""

    @property
    def consumers(self) -> int:
        return sum(queue.consumers for queue in self.queues.values())
