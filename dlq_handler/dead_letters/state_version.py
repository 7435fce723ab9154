"""The version of a state that an operator sees and acts upon: a short hash of what the operation depends on. Pure.

An operation names the version that was shown. When the state has another version by then, nothing is done. Values that
change all the time and decide nothing (a count of repeats, the clock) are in no version.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.filter import CappedCount
from dlq_handler.dead_letters.record import LetterRecord
from dlq_handler.safety.brake import BrakeState


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterState:
    """The columns that change when a dead letter is queued for reprocessing or decided."""

    id: int
    outcome: Outcome
    attempts: int
    decided_at: datetime
    next_attempt_at: datetime | None
    is_shadow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The kept dead letters of a group that one operation queues: all of them, unless there are very many."""

    letters: CappedCount
    """Capped: there are more, which the operation does not reach."""
    digest: str
    """It changes when one of these dead letters is queued or decided, or when another one joins them."""


def brake_version(state: BrakeState) -> str:
    return _version("brake", state.tripped_at, state.tripped_by, state.released_at, state.released_until)


def letter_version(record: LetterRecord) -> str:
    return letters_version([record])


def letters_version(letters: Iterable[LetterRecord | LetterState]) -> str:
    """Of these together, in any order."""
    return _version("letters", *_parts(letters))


def group_version(digest: str) -> str:
    """Of the dead letters of a group that one operation queues. The others are not part of it."""
    return _version("group", digest)


def _parts(letters: Iterable[LetterRecord | LetterState]) -> list[object]:
    # With `next_attempt_at`: a dead letter that was queued may stay unrelated, or wait for the brake.
    return [
        part
        for one in sorted(letters, key=lambda letter: letter.id)
        for part in (one.id, one.outcome.value, one.attempts, one.decided_at, one.next_attempt_at)
    ]


def _version(*parts: object) -> str:
    text = "\x1f".join(part.isoformat() if isinstance(part, datetime) else repr(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
