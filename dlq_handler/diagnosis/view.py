"""The view: what could be seen of everything that a rescue depends on, at one moment.

Each fact may be unknown, with the reason in words, and is unknown unless somebody has looked: whoever forgets a
question gets "unknown" for it, never "ok". Ages and times are by the database's clock.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from dlq_handler.diagnosis.attunes_ends import AttunesEnds
from dlq_handler.host.worker import QueueObservation, RegisteredWorker
from dlq_handler.safety.brake import BrakePolicy, BrakeView
from dlq_handler.safety.gate import GateCause
from dlq_handler.topology.check import CheckedTopology
from dlq_handler.topology.consumers import Consumers
from dlq_handler.topology.decide_canary import WorkerCanary
from dlq_handler.workers.availability import Availability, Standing, is_history
from dlq_handler.workers.service_look import ServiceLook, ServiceLooks, has_reported_twice


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody could tell, and why."""

    explanation: str


@dataclass(frozen=True, slots=True)
class Unsure(Unknown):
    """Whoever was asked is there, and cannot tell itself: nobody else may conclude it in its place."""


@dataclass(frozen=True, slots=True)
class Hung(Unknown):
    """A process holds the address and does not answer: it hangs. That is not the same as no process."""


NOT_ASKED = Unknown("nobody has looked")
DATABASE_AWAY = Unknown("the database is unreachable")

Off = Literal["off"]
"""Switched off in the settings: there is nothing to be seen, and nothing to be said."""
OFF: Off = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSeen:
    trouble: str | None = None
    """Why it does not answer; None when it does."""
    is_in_recovery: bool = False
    answer_seconds: float = 0.0
    since: datetime | None = None
    """When it was first seen like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSeen:
    trouble: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSeen:
    version: str | None
    schema: str
    problem: str | None = None
    """Why this program cannot use them, with the action. None: it can."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsSeen:
    missing: Sequence[str]
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySeen:
    checked: CheckedTopology
    limits: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeen:
    name: str
    taken: Consumers | None
    """None: there is no such queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSeen:
    """Of the one sidecar that was asked."""

    causes: Collection[GateCause]
    words: str | None = None
    asked: str = "this process"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeSeen:
    view: BrakeView
    policy: BrakePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSeen:
    """The lease of the one that looks for stale executions."""

    is_held: bool
    until: datetime | None = None
    """Of a lease that was given up: when the last sidecar stopped. None: there never was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLink:
    """What the sidecar that looks knows of its own connections, whether or not the management API answers."""

    is_consuming: bool = False
    is_blocked: bool = False
    """The broker takes no message of ours for want of memory or disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSeen:
    """What the sidecar that looks knows of itself: it runs, and what it lacks it is about to get."""

    link: OwnLink = OwnLink()
    opening_seconds: float = 0.0
    """For how long nobody has been seen to consume, although nothing pauses us."""
    opens_within_seconds: float
    leaderless_seconds: float = 0.0
    """For how long the lease has been seen to be free."""
    leads_within_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSeen:
    pending: int
    oldest_seconds: float
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersSeen:
    """Letters that nobody can do anything with, counted over two spans of equal length."""

    span_seconds: float
    unreadable: int
    unrelated: int
    before: int
    """Both kinds, in the span before this one."""
    declined: int = 0
    """In this span, and none of those: executions whose request the executor rejected, having no worker for them."""
    first_at: datetime | None = None
    """Of those in both spans: the beginning of what goes on now, to the minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    registered: RegisteredWorker
    standing: Standing
    queue: QueueObservation | Unknown | None
    """None: it has none."""
    ended_last_hour: int | None = 0
    """Executions of it that we ended; None: unknown."""
    expired_lately: int = 0
    """Letters that expired in its queue within minutes."""
    was_stopped: bool = False
    """It said itself that it stops."""
    is_on_time: bool = True
    """No heartbeat of it is missing yet."""
    look: ServiceLook | None = None
    """What the leader has on record of its queue; None: nothing, or too long ago."""

    @property
    def sight(self) -> QueueObservation | None:
        return None if isinstance(self.queue, Unknown) else self.queue

    @property
    def name(self) -> str:
        return f"{self.registered.name} ({self.registered.worker.id})"

    @property
    def is_consumed(self) -> bool:
        """Its queue has a consumer."""
        return self.sight is not None and self.sight.consumers > 0

    @property
    def is_reporting(self) -> bool:
        """Its heartbeat is fresh."""
        return self.is_there and self.is_on_time

    @property
    def is_inactive(self) -> bool:
        """The host gives it no work. A cordoned worker does not count: an operator wants it to get none."""
        return self.registered.status == "inactive" and not self.registered.is_cordoned

    @property
    def reports_unconsumed(self) -> bool:
        """Its queue has no consumer, and the leader saw two different heartbeats while it had none."""
        is_unconsumed = self.sight is not None and self.sight.consumers == 0
        first = self.look.first_heartbeat if self.look else None
        return self.is_reporting and is_unconsumed and self._has_reported_since(first)

    @property
    def reports_inactive(self) -> bool:
        """It is inactive, and the leader saw two different heartbeats while it was."""
        first = self.look.inactive_heartbeat if self.look else None
        return self.is_reporting and self.is_inactive and self._has_reported_since(first)

    def _has_reported_since(self, first_heartbeat: datetime | None) -> bool:
        return has_reported_twice(first_heartbeat, self.registered.worker.last_heartbeat)

    @property
    def silent_seconds(self) -> float:
        return self.registered.worker.heartbeat_age_seconds or 0.0

    @property
    def is_there(self) -> bool:
        return self.standing.availability in (Availability.AVAILABLE, Availability.LATE)

    @property
    def waiting(self) -> int:
        """Executions that are its to do."""
        return self.registered.scheduled + self.registered.running

    @property
    def is_missed(self) -> bool:
        """Somebody waits for it, or lost something by it: one that was stopped with nothing to do is not missed.

        The status is no evidence: the host marks the dead inactive too, so a killed worker would be missed by nobody.
        """
        is_retired = self.was_stopped or self.registered.is_cordoned
        ready = self.sight.ready if self.sight else 0
        is_idle = self.waiting == 0 and ready == 0 and self.ended_last_hour == 0
        return not (is_idle and (is_retired or is_history(self.registered.worker)))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    at: datetime
    """The database's time, or this machine's while it does not answer."""
    ttl_seconds: float
    """Of the workers' queues as configured, where the broker does not tell the real one."""
    own_prefix: str = "dlq-handler."
    """How the tags of our consumers begin."""
    database: DatabaseSeen | Unknown = NOT_ASKED
    tables: TablesSeen | Unknown = NOT_ASKED
    rights: RightsSeen | Unknown = NOT_ASKED
    broker: BrokerSeen | Unknown = NOT_ASKED
    alarms: Sequence[str] | Unknown = NOT_ASKED
    topology: TopologySeen | Unknown = NOT_ASKED
    intake: QueueSeen | Unknown | Off = NOT_ASKED
    canaries: Sequence[WorkerCanary] | Unknown | Off = NOT_ASKED
    gate: GateSeen | Unknown = NOT_ASKED
    brake: BrakeSeen | Unknown = NOT_ASKED
    is_shadow: bool | Unknown = NOT_ASKED
    leader: LeaderSeen | Unknown | Off = NOT_ASKED
    outbox: OutboxSeen | Unknown = NOT_ASKED
    workers: Sequence[WorkerSeen] | Unknown = NOT_ASKED
    requested: int | Unknown = NOT_ASKED
    """Executions that were asked for, and that no worker has been given yet."""
    at_request_limit: int | Unknown = NOT_ASKED
    """Executions that were not scheduled in time, and whose request dlq-handler does not publish again: as often as the
    settings allow it did, or they allow none (`republishes_requests`).
    """
    republishes_requests: bool = True
    letters: LettersSeen | Unknown = NOT_ASKED
    attunes_ends: AttunesEnds | Unknown = NOT_ASKED
    completions: QueueSeen | Unknown = NOT_ASKED
    requests: QueueSeen | Unknown = NOT_ASKED
    service_looks: ServiceLooks | Unknown = NOT_ASKED
    """What the leader has on record of queues without consumers."""
    own: OwnSeen | None = None
    """None: a command looks, which is no sidecar."""
