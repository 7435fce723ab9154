"""What is on record about one execution, by dlq-handler and by the host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dlq_handler.dead_letters.listing import LetterRecord
from dlq_handler.endings.outbox_sql import OutboxProblem
from dlq_handler.host.ends import MonitorEnd
from dlq_handler.host.story_sql import ExecutionFacts, Transition
from dlq_handler.timeouts.decision import StaleRecord


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
    problem: OutboxProblem | None
    last_error: str | None

    @property
    def is_withheld(self) -> bool:
        return self.problem is OutboxProblem.WITHHELD

    @property
    def error(self) -> str | None:
        """The problem and the last error, for people. None: no attempt has failed."""
        parts = [part for part in (self.problem, self.last_error) if part is not None]
        return ": ".join(parts) if parts else None


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
    """None: dlq-handler has no right to read it, or the host keeps none."""
    now: datetime
    """The database's clock."""

    @property
    def is_unknown(self) -> bool:
        return self.execution is None and not (self.letters or self.decisions or self.outbox)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why an execution that has not ended is still waiting, as far as dlq-handler can know."""

    explanation: str
    unwatched: str | None = None
    """Why no replica scans for it at present, so that nothing is promised; None: the leader does."""
    until: datetime | None = None
    """None: it waits for an event, not for a time."""
    is_earliest: bool = False
    """Something that is not known, or that a person must end, may make it later than `until`."""
    notes: Sequence[str] = ()
    """What else prevents its end, or is unknown."""
    evidence: Mapping[str, object] = field(default_factory=dict)


def clock(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
