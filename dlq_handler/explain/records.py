"""What is on record about one execution, ours and the host's: what its story is told from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dlq_handler.dead_letters.record import LetterRecord
from dlq_handler.host.ends import MonitorEnd
from dlq_handler.timeouts.decision import StaleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFacts:
    """The host's row as it is now."""

    id: int
    status: str
    """In the host's words: a newer one may know others than we do."""
    is_terminal: bool
    action_ref: str
    created: datetime
    updated: datetime
    started_at: datetime | None = None
    worker_id: int | None = None
    parent_id: int | None = None
    retry_of: int | None = None
    error: str | None = None
    """Of its result."""
    ended_by: str | None = None
    """Who signed its result: failed_by, abandoned_by or cancelled_by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of status or worker, from the host's own history."""

    at: datetime
    before: str | None
    """None: the row was created."""
    after: str
    worker_id: int | None = None
    """Given when the worker changed too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRecord:
    message_id: str
    routing_key: str
    created_at: datetime
    attempts: int
    confirmed_at: datetime | None
    next_attempt_at: datetime
    lease_holder: str | None
    lease_until: datetime | None
    last_error: str | None
    is_withheld: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Everything about one execution. `execution` None: the host has no such row (any more)."""

    execution: ExecutionFacts | None
    letters: Sequence[LetterRecord] = ()
    decisions: Sequence[StaleRecord] = ()
    outbox: Sequence[OutboxRecord] = ()
    unpublished: MonitorEnd | None = None
    """Its end, if Attune's own timeout monitor wrote it and its completion event may be lost."""
    history: Sequence[Transition] | None = None
    """None: we may not read it, or there is none."""
    now: datetime
    """The database's clock."""

    @property
    def is_unknown(self) -> bool:
        return self.execution is None and not (self.letters or self.decisions or self.outbox)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why an execution that has not ended is still waiting, as far as it is ours to say."""

    explanation: str
    unwatched: str | None = None
    """Why nobody looks for it at present, so that nothing is promised; None: the leader does."""
    until: datetime | None = None
    """None: only an event can tell."""
    is_earliest: bool = False
    """Something that is not known, or that a person must end, may make it later than `until`."""
    notes: Sequence[str] = ()
    """What else stands in the way, or is not known."""
    evidence: Mapping[str, object] = field(default_factory=dict)


def clock(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
