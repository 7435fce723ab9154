"""The view: what could be seen of everything that a rescue depends on, at one moment.

Each fact may be unknown, with the reason in words, and is unknown unless somebody has looked: whoever forgets a
question gets "cannot tell" for it, never "ok". Ages and times are by the database's clock.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Literal

from dlq_handler.domain.availability import Availability, Standing, is_history
from dlq_handler.domain.brake import BrakePolicy, BrakeView
from dlq_handler.domain.doctor import Consumers
from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.judge_canary import WorkerCanary
from dlq_handler.domain.topology_check import CheckedTopology
from dlq_handler.domain.worker import QueueSight, RegisteredWorker


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody could tell, and why."""

    why: str


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
    wanted: str
    schema: str


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
    foreign: int
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
    queue: QueueSight | Unknown | None
    """None: it has none."""
    ended_last_hour: int | None = 0
    """Executions of it that we ended; None: unknown."""
    expired_lately: int = 0
    """Letters that expired in its queue within minutes."""
    was_stopped: bool = False
    """It said itself that it stops."""
    is_on_time: bool = True
    """Nobody has missed a heartbeat of it yet."""

    @property
    def sight(self) -> QueueSight | None:
        return None if isinstance(self.queue, Unknown) else self.queue

    @property
    def name(self) -> str:
        return f"{self.registered.name} ({self.registered.worker.id})"

    @property
    def is_consumed(self) -> bool:
        """Somebody is seen to consume its queue."""
        return self.sight is not None and self.sight.consumers > 0

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
    """Of those: requested again as often as the settings allow, and never scheduled."""
    letters: LettersSeen | Unknown = NOT_ASKED
    completions: QueueSeen | Unknown = NOT_ASKED
    requests: QueueSeen | Unknown = NOT_ASKED
    own: OwnSeen | None = None
    """None: a command looks, which is no sidecar."""


def without_database(view: View, *, trouble: str, since: datetime | None) -> View:
    """The same, with the database unreachable: everything that was read from it is unknown now."""
    return replace(
        view,
        database=DatabaseSeen(trouble=trouble, since=since),
        tables=DATABASE_AWAY,
        rights=DATABASE_AWAY,
        canaries=OFF if view.canaries == OFF else DATABASE_AWAY,
        brake=DATABASE_AWAY,
        leader=OFF if view.leader == OFF else DATABASE_AWAY,
        outbox=DATABASE_AWAY,
        workers=DATABASE_AWAY,
        requested=DATABASE_AWAY,
        at_request_limit=DATABASE_AWAY,
        letters=DATABASE_AWAY,
    )


def unseen(view: View, why: str) -> View:
    """The same, if nobody had looked: what was seen is too old to tell anything of now."""
    forgotten: dict[str, Any] = {
        field.name: Unknown(why) for field in fields(view) if isinstance(field.default, Unknown)
    }
    return replace(view, **forgotten)
