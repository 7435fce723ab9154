"""A worker: the name of its queue, and whether it is known to be unavailable.

The only evidence is the age of its heartbeat, and only while the replica's own view is reliable.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dlq_handler.text import INT64

_LONGEST_ID = len(str(INT64[-1]))

# In heartbeats. A worker that stops cleanly sets its status before its next heartbeat is due; a monitor does so later.
_ON_TIME_BEATS = 1.5


class WorkerStatus(StrEnum):
    """The statuses of a worker that the host knows. A newer host may have others, so a row keeps its status as text."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    BUSY = "busy"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker row. `heartbeat_age_seconds` is by the database clock; None: unknown."""

    id: int
    heartbeat_age_seconds: float | None
    last_heartbeat: datetime | None = None
    """The heartbeat itself: it distinguishes two observations that both find it old."""
    status: str | None = None
    """The status in the host's row; None: it was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredWorker:
    """A worker row with the fields that the CLI and the dashboard show, and its executions."""

    worker: Worker
    name: str
    status: str
    role: str | None
    """None on a host whose workers have no role."""
    is_cordoned: bool
    cordon_reason: str | None
    scheduled: int
    running: int
    oldest_scheduled_seconds: float | None = None
    """How long the longest of the scheduled ones has waited; None when there is none."""
    host: str | None = None
    """None on a host that does not store it."""
    updated: datetime | None = None
    """When its row was last changed; None on a host that does not store it."""

    @property
    def takes_dispatches(self) -> bool:
        return self.role in (None, "action")

    def was_stopped(self, policy: "AvailabilityPolicy") -> bool:
        """The worker itself set its status when it stopped. A monitor sets the status much later."""
        heartbeat = self.worker.last_heartbeat
        if self.status != WorkerStatus.INACTIVE or heartbeat is None or self.updated is None:
            return False
        return (self.updated - heartbeat).total_seconds() <= policy.on_time_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueObservation:
    """What the broker reports about an existing worker queue."""

    consumers: int
    ready: int
    unacked: int | None = None
    """What its consumers hold; None where the management API cannot be asked."""
    ttl_ms: int | None = None
    """Its x-message-ttl as it was declared; None: unknown, or it has none."""
    has_no_ttl: bool = False
    """It is known to have none: a message waits in it until a worker takes it."""

    @property
    def is_ttl_known(self) -> bool:
        return self.ttl_ms is not None or self.has_no_ttl

    @property
    def holds_messages(self) -> bool:
        """It is known that the queue or its consumers hold one."""
        return self.ready > 0 or (self.unacked or 0) > 0

    @property
    def may_hold_messages(self) -> bool:
        """False only when neither the queue nor its consumers can hold one."""
        if self.unacked is None:
            return self.ready > 0 or self.consumers > 0
        return self.ready + self.unacked > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQueueNames:
    """How this host names a worker's queue and its routing key; `{id}` stands for the worker's id."""

    queue_pattern: str = "worker.{id}.executions"
    routing_key_pattern: str = "execution.dispatch.worker.{id}"

    def queue(self, worker_id: int) -> str:
        return self.queue_pattern.replace("{id}", str(worker_id))

    def routing_key(self, worker_id: int) -> str:
        return self.routing_key_pattern.replace("{id}", str(worker_id))

    def owner_of(self, queue: str) -> int | None:
        """The id in a worker queue's name, None for any other queue."""
        return id_in(queue, self.queue_pattern)

    def owner_of_key(self, routing_key: str) -> int | None:
        """The id in a worker's routing key, None for any other key."""
        return id_in(routing_key, self.routing_key_pattern)


def id_in(name: str, pattern: str) -> int | None:
    """The worker's id, where the name fits the pattern."""
    prefix, _, suffix = pattern.partition("{id}")
    if len(name) <= len(prefix) + len(suffix) or not (name.startswith(prefix) and name.endswith(suffix)):
        return None
    middle = name[len(prefix) : len(name) - len(suffix)]
    # Senders can put any number into a header; a worker's id is a bigint. The length is checked before the conversion,
    # whose time grows with the square of it.
    is_number = middle.isascii() and middle.isdigit() and len(middle) <= _LONGEST_ID
    return int(middle) if is_number and int(middle) in INT64 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailabilityPolicy:
    unavailable_after_seconds: float
    late_after_seconds: float = 90.0
    """For display only: three heartbeats missed."""

    @property
    def on_time_seconds(self) -> float:
        """For display only: until this age the next heartbeat is not overdue."""
        return _ON_TIME_BEATS * self.late_after_seconds / 3


def is_unavailable(worker: Worker, *, link_age_seconds: float, policy: AvailabilityPolicy) -> bool:
    """True only when the heartbeat is too old and the replica was connected to the database all that time.

    After a database outage every heartbeat is old, because no worker could write one. So a link younger than the
    limit proves nothing. Status inactive or error is no evidence either: a graceful stop sets it first.
    """
    if worker.heartbeat_age_seconds is None or link_age_seconds < policy.unavailable_after_seconds:
        return False
    return worker.heartbeat_age_seconds > policy.unavailable_after_seconds


def has_stopped(worker: Worker | None, *, link_age_seconds: float, policy: AvailabilityPolicy) -> bool:
    """It can be retired: it has no row, it set its status when it stopped, or it is unavailable.

    A monitor may have set the status of a worker that still runs: this counts only together with a queue that has no
    consumer. None: no row; ids are never used again.
    """
    if worker is None or worker.status == WorkerStatus.INACTIVE:
        return True
    return is_unavailable(worker, link_age_seconds=link_age_seconds, policy=policy)


def has_returned(worker: Worker | None, *, policy: AvailabilityPolicy) -> bool:
    """A worker that was retired has registered again: that sets its heartbeat and its status, before it declares its
    queues. A heartbeat of an inactive worker is that of its last minutes.
    """
    if worker is None or worker.status == WorkerStatus.INACTIVE or worker.heartbeat_age_seconds is None:
        return False
    return worker.heartbeat_age_seconds <= policy.unavailable_after_seconds


def is_on_time(worker: Worker, *, policy: AvailabilityPolicy) -> bool:
    """Its next heartbeat is not overdue. For display only."""
    age = worker.heartbeat_age_seconds
    return age is not None and age <= policy.on_time_seconds


def by_heartbeat(workers: Iterable[Worker]) -> list[int]:
    """Their ids, those with the youngest heartbeat first: their queues most likely exist."""

    def age(worker: Worker) -> float:
        return float("inf") if worker.heartbeat_age_seconds is None else worker.heartbeat_age_seconds

    return [worker.id for worker in sorted(workers, key=age)]
