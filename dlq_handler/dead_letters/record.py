"""A letter on record: what is written when it was decided, and what is shown later."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from dlq_handler.dead_letters.decide import LetterProposal
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DeadLetter, ParseProblem, without_fields
from dlq_handler.endings.recording import Refusal, next_attempt

GUARD_MISSED = "its status or `updated` is no longer as it was read"
MISSED = Refusal(error=GUARD_MISSED, is_own_error=False, frames=None)
CHANGED = "another session changed the execution before dlq-handler could end it"
REFUSED = "the database refused the change that this decision makes"
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

    @property
    def execution_id(self) -> int | None:
        return self.letter.execution_id


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLetter:
    """A record that may be reprocessed, as it was read without a lock."""

    record_id: int
    execution_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedLetter:
    """A record that is being reprocessed; its row is locked until the transaction ends."""

    record_id: int
    outcome: Outcome
    attempts: int
    letter: DeadLetter


def entries_of(
    proposals: Sequence[LetterProposal], *, ended: AbstractSet[int], now: datetime, attempts_before: int = 0
) -> list[Entry]:
    """What to record of `proposals` when exactly the executions in `ended` were really changed.

    When a change missed its guard, no decision about that execution holds: a later dead letter of the same batch was
    decided as if the change had been made.
    """
    missed = {
        one.change.execution.id
        for one in proposals
        if one.change is not None and one.change.execution.id not in ended
    }
    return list(_entries(proposals, missed, now, attempts_before))


def _entries(
    proposals: Sequence[LetterProposal], missed: AbstractSet[int], now: datetime, attempts_before: int
) -> Iterable[Entry]:
    for one in proposals:
        if one.execution_id in missed:
            yield update_failed(one.letter, MISSED, attempts=attempts_before + 1, now=now)
        else:
            yield Entry(
                letter=one.letter,
                outcome=one.decision.outcome,
                explanation=one.decision.explanation,
                evidence=one.evidence,
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
        parse_problem=ParseProblem.FIELDS_REFUSED,
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


def _explanation_of(refusal: Refusal) -> str:
    if refusal is MISSED:
        return CHANGED
    return OWN_ERROR if refusal.is_own_error else REFUSED


def update_failed(letter: DeadLetter, refusal: Refusal, *, attempts: int, now: datetime) -> Entry:
    """`attempts` counts this attempt too."""
    return Entry(
        letter=letter,
        outcome=Outcome.UPDATE_FAILED,
        explanation=_explanation_of(refusal),
        error=refusal.error,
        attempts=attempts,
        next_attempt_at=next_attempt(now, attempts),
    )
