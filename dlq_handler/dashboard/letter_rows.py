"""Letters as rows of a table. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.dashboard.words import NONE, State
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.record import LetterRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRow:
    id: int
    href: str
    title: str
    """What it was to do: its action, or what it is if it was no dispatch."""
    received_at: datetime
    execution_id: int | None
    queue: str
    worker: str | None
    reason: str
    outcome: str
    state: State | None
    """None: it is settled, and that its execution failed is no state of the letter."""
    explanation: str


def letter_rows(records: Iterable[LetterRecord], names: Mapping[int, str]) -> Sequence[LetterRow]:
    return [
        LetterRow(
            id=one.id,
            href=f"/letters/{one.id}",
            title=one.action_ref or one.message_type or f"letter {one.id}",
            received_at=one.received_at,
            execution_id=one.execution_id,
            queue=one.first_death_queue or one.queue or NONE,
            worker=None if one.worker_id is None else names.get(one.worker_id),
            reason=one.reason,
            outcome=outcome_in_words(one),
            state=state_of_outcome(one.outcome),
            explanation=one.error or one.explanation,
        )
        for one in records
    ]


def outcome_in_words(record: LetterRecord) -> str:
    word = record.outcome.value.replace("_", " ")
    return f"{word} (shadow)" if record.is_shadow else word


def state_of_outcome(outcome: Outcome) -> State | None:
    """No sign for unrelated ones: no operator has to act on them."""
    return None if outcome.is_resolved or outcome is Outcome.UNRELATED else State.WARN
