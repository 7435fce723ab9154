"""The view: the state of everything that dlq-handler depends on, at one moment. Pure.

A fact may be unknown, with its cause, and is unknown unless it was observed: a question that was left out gives
"unknown", never "ok". Ages and times are by the database's clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from dlq_handler.host.worker import QueueObservation, RegisteredWorker, WorkerStatus
from dlq_handler.lifecycle.flow_summary import FlowsFact
from dlq_handler.safety.brake import BrakeView
from dlq_handler.safety.gate import GateCause
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.topology.canary import WorkerCanary
from dlq_handler.topology.check import CheckedTopology
from dlq_handler.topology.consumers import Consumers
from dlq_handler.topology.system_queues import SystemQueues
from dlq_handler.workers.availability import Availability, Standing, is_silent_for_a_day
from dlq_handler.workers.service_observation import (
    ServiceObservation,
    ServiceObservations,
    has_reported_twice,
)


class UnknownCause(StrEnum):
    """Why a fact is unknown."""

    NOT_OBSERVED = "not_observed"
    """No observation yet, or the last one is too old."""
    DATABASE_UNAVAILABLE = "database_unavailable"
    BROKER_UNAVAILABLE = "broker_unavailable"
    UNREACHABLE = "unreachable"
    """The server that was asked cannot be reached, or did not answer in time."""
    REFUSED = "refused"
    """The server answered with an error, or it knows only a part."""
    REPLICA_UNSURE = "replica_unsure"
    """The replica that was asked answers, and does not know: no other observation may replace its answer."""
    REPLICA_HANGS = "replica_hangs"
    """A process holds the address of the replica and does not answer. That is not the same as no process."""
    TAKES_TIME = "takes_time"
    """Nothing is wrong: it is known after some more seconds."""


@dataclass(frozen=True, slots=True)
class Unknown:
    explanation: str
    cause: UnknownCause = UnknownCause.REFUSED


NOT_OBSERVED = Unknown("there is no observation yet", UnknownCause.NOT_OBSERVED)
WITHOUT_DATABASE = Unknown("the database is unreachable", UnknownCause.DATABASE_UNAVAILABLE)
WITHOUT_BROKER = Unknown("the broker does not answer", UnknownCause.BROKER_UNAVAILABLE)

Off = Literal["off"]
"""Disabled in the settings: there is nothing to observe, and no diagnosis."""
OFF: Off = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFact:
    error: str | None = None
    """Why it cannot be used; None: it answers."""
    is_unreachable: bool = False
    """With an error: no connection, or no answer. Otherwise it answers and refuses."""
    is_in_recovery: bool = False
    answer_seconds: float = 0.0
    since: datetime | None = None
    """The first observation of the error; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFact:
    error: str | None = None
    """Why it cannot be used; None: it answers."""
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesFact:
    version: str | None
    schema: str
    problem: str | None = None
    """Why this program cannot use them, with the action; None: it can."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsFact:
    missing: Sequence[str]
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyFact:
    checked: CheckedTopology
    limits: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFact:
    name: str
    consumers: Consumers | None
    """None: there is no such queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFact:
    """The safety gate of one replica."""

    causes: Sequence[GateCause]
    explanation: str | None = None
    since: datetime | None = None
    """When the oldest cause but a young connection began, by the database's clock; None: there is none, or unknown."""
    replica: str = "this replica"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeFact:
    view: BrakeView
    policy: BrakeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderFact:
    """The lease of the replica that scans for stale executions."""

    is_held: bool
    until: datetime | None = None
    """When the lease ends or ended. Of a lease that was given up: when the last replica stopped. None: never held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnConnections:
    """What the observing replica knows of its own connections, whether or not the management API answers."""

    is_consuming: bool = False
    is_blocked: bool = False
    """The broker accepts no message of this replica: it is short of memory or disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFact:
    """What the observing replica knows of itself: it runs, and what it lacks it usually gets by itself."""

    connections: OwnConnections = OwnConnections()
    unconsumed_seconds: float = 0.0
    """For how long no replica has consumed, although nothing pauses them."""
    opens_within_seconds: float
    leaderless_seconds: float = 0.0
    """For how long the lease has been free."""
    leads_within_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxFact:
    pending: int
    oldest_seconds: float
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersFact:
    """Dead letters that belong to no execution, counted over two spans of equal length."""

    span_seconds: float
    unreadable: int
    unrelated: int
    before: int
    """Both kinds, in the span before this one."""
    declined: int = 0
    """In this span, and none of those: executions whose request the executor rejected, having no worker for them."""
    first_at: datetime | None = None
    """The first in both spans, to the minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttuneMonitorFact:
    """Attune's own timeout monitor: it also fails executions that a busy worker holds and then runs."""

    is_enabled: bool
    """By executor.enable_timeout_monitor in the settings that dlq-handler reads too."""
    span_seconds: float
    ended: int = 0
    """Executions that it ended in the span."""
    first_at: datetime | None = None
    """When it ended the first of them; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphansFact:
    """Queues of workers that are gone."""

    queues: int
    workers: int
    ready: int | None
    """Messages in them; None: unknown."""
    limits: Sequence[str] = ()
    """What could not be read, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedWorker:
    registered: RegisteredWorker
    standing: Standing
    queue: QueueObservation | Unknown | None
    """None: it has none."""
    ended_last_hour: int | None = 0
    """Its executions that dlq-handler ended; None: unknown."""
    expired_lately: int = 0
    """Messages that expired in its queue within the last minutes."""
    was_stopped: bool = False
    """It reported itself that it stops."""
    is_on_time: bool = True
    """Its next heartbeat is not overdue."""
    observation: ServiceObservation | None = None
    """What the leader has on record of its queue; None: nothing, or too long ago."""

    @property
    def known_queue(self) -> QueueObservation | None:
        """None: it has none, or nothing is known of it."""
        return None if isinstance(self.queue, Unknown) else self.queue

    @property
    def name(self) -> str:
        return f"{self.registered.name} ({self.registered.worker.id})"

    @property
    def is_consumed(self) -> bool:
        """Its queue has a consumer."""
        return self.known_queue is not None and self.known_queue.consumers > 0

    @property
    def is_reporting(self) -> bool:
        """Its heartbeat is fresh."""
        return self.is_present and self.is_on_time

    @property
    def is_inactive(self) -> bool:
        """The host gives it no work. A cordoned worker does not count: an operator wants it to get none."""
        return self.registered.status == WorkerStatus.INACTIVE and not self.registered.is_cordoned

    @property
    def reports_unconsumed(self) -> bool:
        """Its queue has no consumer, and the leader saw two different heartbeats while it had none."""
        is_unconsumed = self.known_queue is not None and self.known_queue.consumers == 0
        first = self.observation.first_heartbeat if self.observation else None
        return self.is_reporting and is_unconsumed and self._has_reported_since(first)

    @property
    def reports_inactive(self) -> bool:
        """It is inactive, and the leader saw two different heartbeats while it was."""
        first = self.observation.inactive_heartbeat if self.observation else None
        return self.is_reporting and self.is_inactive and self._has_reported_since(first)

    def _has_reported_since(self, first_heartbeat: datetime | None) -> bool:
        return has_reported_twice(first_heartbeat, self.registered.worker.last_heartbeat)

    @property
    def silent_seconds(self) -> float:
        return self.registered.worker.heartbeat_age_seconds or 0.0

    @property
    def is_present(self) -> bool:
        return self.standing.availability in (Availability.AVAILABLE, Availability.LATE)

    @property
    def waiting(self) -> int:
        """Executions that are scheduled or running on it."""
        return self.registered.scheduled + self.registered.running

    @property
    def is_missed(self) -> bool:
        """Executions wait for it, or were lost by it. A worker that was stopped with nothing to do is not missed.

        The status is no evidence: the host marks dead workers inactive too, so a killed worker would never be missed.
        """
        is_retired = self.was_stopped or self.registered.is_cordoned
        ready = self.known_queue.ready if self.known_queue else 0
        is_idle = self.waiting == 0 and ready == 0 and self.ended_last_hour == 0
        return not (is_idle and (is_retired or is_silent_for_a_day(self.registered.worker)))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    at: datetime
    """The database's time, or this machine's while the database does not answer."""
    ttl_seconds: float
    """Of the workers' queues as configured, where the broker does not report the real one."""
    own_prefix: str = "dlq-handler."
    """Prefix of the consumer tags of replicas."""
    database: DatabaseFact | Unknown = NOT_OBSERVED
    tables: TablesFact | Unknown = NOT_OBSERVED
    rights: RightsFact | Unknown = NOT_OBSERVED
    broker: BrokerFact | Unknown = NOT_OBSERVED
    alarms: Sequence[str] | Unknown = NOT_OBSERVED
    topology: TopologyFact | Unknown = NOT_OBSERVED
    intake: QueueFact | Unknown | Off = NOT_OBSERVED
    canaries: Sequence[WorkerCanary] | Unknown | Off = NOT_OBSERVED
    gate: GateFact | Unknown = NOT_OBSERVED
    brake: BrakeFact | Unknown = NOT_OBSERVED
    is_shadow: bool | Unknown = NOT_OBSERVED
    live_replica: str | None = None
    """Only where the settings are in shadow mode: a replica that runs in live mode on the same tables."""
    leader: LeaderFact | Unknown | Off = NOT_OBSERVED
    outbox: OutboxFact | Unknown = NOT_OBSERVED
    workers: Sequence[ObservedWorker] | Unknown = NOT_OBSERVED
    requested: int | Unknown = NOT_OBSERVED
    """Executions that were requested and are not scheduled yet."""
    at_request_limit: int | Unknown = NOT_OBSERVED
    """Executions that were not scheduled in time, and whose request dlq-handler does not publish again: the limit of
    the settings is reached, or they allow none (`republishes_requests`).
    """
    republishes_requests: bool = True
    letters: LettersFact | Unknown = NOT_OBSERVED
    attune_monitor: AttuneMonitorFact | Unknown = NOT_OBSERVED
    completions: QueueFact | Unknown = NOT_OBSERVED
    requests: QueueFact | Unknown = NOT_OBSERVED
    system_queues: SystemQueues | Unknown = NOT_OBSERVED
    service_observations: ServiceObservations | Unknown = NOT_OBSERVED
    """What the leader has on record of queues without consumers."""
    flows: FlowsFact | Unknown = NOT_OBSERVED
    orphans: OrphansFact | Unknown | Off = NOT_OBSERVED
    """OFF: not counted, because a command observes, or heartbeats have not been read for long enough yet."""
    own: OwnFact | None = None
    """None: a command observes, which is no replica."""

    @property
    def has_database(self) -> bool:
        return isinstance(self.database, DatabaseFact) and self.database.error is None

    @property
    def has_broker(self) -> bool:
        return isinstance(self.broker, BrokerFact) and self.broker.error is None


def without_database(view: View, *, error: str, is_unreachable: bool, since: datetime | None) -> View:
    """The same view with the database unavailable: everything that was read from it is unknown now."""
    return replace(
        view,
        database=DatabaseFact(error=error, is_unreachable=is_unreachable, since=since),
        tables=WITHOUT_DATABASE,
        rights=WITHOUT_DATABASE,
        canaries=OFF if view.canaries == OFF else WITHOUT_DATABASE,
        brake=WITHOUT_DATABASE,
        leader=OFF if view.leader == OFF else WITHOUT_DATABASE,
        outbox=WITHOUT_DATABASE,
        workers=WITHOUT_DATABASE,
        requested=WITHOUT_DATABASE,
        at_request_limit=WITHOUT_DATABASE,
        letters=WITHOUT_DATABASE,
        attune_monitor=WITHOUT_DATABASE,
        service_observations=WITHOUT_DATABASE,
        flows=WITHOUT_DATABASE,
        orphans=OFF if view.orphans == OFF else WITHOUT_DATABASE,
    )


def outdated(view: View, why: str) -> View:
    """The same view without any fact: the observation is too old to be valid now."""
    forgotten: dict[str, Any] = {
        field.name: Unknown(why, UnknownCause.NOT_OBSERVED)
        for field in fields(view)
        if isinstance(field.default, Unknown)
    }
    return replace(view, **forgotten)


def with_unavailable(view: View, before: Mapping[int, ObservedWorker]) -> View:
    """A worker that was unavailable before and has sent no heartbeat since is so still, and not unknown.

    `before`: unavailable workers by id. A process that has just started cannot know it by its own observation.
    """
    if isinstance(view.workers, Unknown) or not before:
        return view
    workers = []
    for one in view.workers:
        known = before.get(one.registered.worker.id)
        is_same = (
            known is not None
            and known.registered.worker.last_heartbeat == one.registered.worker.last_heartbeat
        )
        if known is not None and is_same and one.standing.availability is Availability.UNKNOWN:
            workers.append(replace(one, standing=known.standing))
        else:
            workers.append(one)
    return replace(view, workers=tuple(workers))
