"""A letter on record: what is written when it was decided, and what is shown later."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from dlq_handler.dead_letters.decide_batch import Ruling
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DeadLetter, without_fields
from dlq_handler.endings.retry_delay import next_attempt

GUARD_MISSED = "the execution was not as it was read when it was to be changed"
REFUSED = "the database refused what this letter asked for"
OWN_ERROR = "an error in the code of dlq-handler: it could not process this dead letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What goes on record about one letter."""

    letter: DeadLetter
    outcome: Outcome
    explanation: str
    error: str | None = None
    attempts: int = 0
    """How often the database refused it."""
    next_attempt_at: datetime | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRecord:
    """One record, for people: what may be secret is masked, but for the body."""

    id: int
    key: str
    message_id: str | None
    correlation_id: str | None
    message_type: str | None
    execution_id: int | None
    worker_id: int | None
    action_ref: str | None
    queue: str | None
    reason: str
    died_at: datetime | None
    first_death_queue: str | None
    exchange: str
    routing_key: str
    attempt_updated_at: datetime | None
    outcome: Outcome
    explanation: str
    error: str | None
    attempts: int
    next_attempt_at: datetime | None
    repeats: int
    received_at: datetime
    decided_at: datetime
    replica: str
    evidence: Mapping[str, object]
    """What the decision rests on; empty for letters without a row."""
    is_shadow: bool
    """True: only what would have been done."""
    body_size: int
    body: bytes | None
    """None in a list, which is made without bodies."""
    group_id: str | None = None
    """None: it counts nowhere (a shadow's), or came before letters were counted."""
    repeated_at: datetime | None = None
    """When it arrived last, if it arrived again."""
    headers: Mapping[str, object] | None = None
    """As received but for the mask, if need be cut; None in a list, empty for letters of before they were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedLetter:
    """A record taken up to be reprocessed; its row is locked until the transaction ends."""

    record_id: int
    outcome: Outcome
    attempts: int
    letter: DeadLetter


def entries_of(
    rulings: Sequence[Ruling], *, changed: AbstractSet[int], now: datetime, attempts_before: int = 0
) -> list[Entry]:
    """What to record of `rulings` when exactly the executions in `changed` were really changed.

    When a change missed its guard, no ruling about that execution holds: a later letter of the same batch was
    decided as if the change had been made.
    """
    missed = {
        ruling.ending.execution.id
        for ruling in rulings
        if ruling.ending is not None and ruling.ending.execution.id not in changed
    }
    return list(_entries(rulings, missed, now, attempts_before))


def _entries(
    rulings: Sequence[Ruling], missed: AbstractSet[int], now: datetime, attempts_before: int
) -> Iterable[Entry]:
    for ruling in rulings:
        if ruling.letter.execution_id in missed:
            yield update_failed(ruling.letter, GUARD_MISSED, attempts=attempts_before + 1, now=now)
        else:
            yield Entry(
                letter=ruling.letter,
                outcome=ruling.decision.outcome,
                explanation=ruling.decision.explanation,
                evidence=ruling.evidence,
            )


def bare_entry(letter: DeadLetter, error: str) -> Entry:
    """Key, body and error alone, for a dead letter whose other fields the database refuses."""
    explanation = "the database refuses the fields of this dead letter; only its body is on record"
    bare = without_fields(
        key=letter.key,
        body=letter.body,
        body_size=letter.body_size,
        redelivered=letter.redelivered,
        parse_error=explanation,
    )
    return Entry(letter=bare, outcome=Outcome.UNREADABLE, explanation=explanation, error=error)


def deferred(letter: DeadLetter, *, deliveries: int, now: datetime) -> Entry:
    """Not decided yet: another delivery may be one too many. It is due at once."""
    return Entry(
        letter=letter,
        outcome=Outcome.DEFERRED,
        explanation=f"not decided after {deliveries} deliveries; dlq-handler decides it from this record",
        next_attempt_at=now,
    )


def update_failed(
    letter: DeadLetter, error: str, *, attempts: int, now: datetime, explanation: str = REFUSED
) -> Entry:
    """`attempts` counts this attempt too."""
    return Entry(
        letter=letter,
        outcome=Outcome.UPDATE_FAILED,
        explanation=explanation,
        error=error,
        attempts=attempts,
        next_attempt_at=next_attempt(now, attempts),
    )
