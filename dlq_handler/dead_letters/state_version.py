"""The version of a state that an operator sees and acts upon: a short hash of what the act depends on. Pure.

Whoever acts sends back the version that was shown; when another one holds by then, nothing is done. What changes all
the time and decides nothing (a count of repeats, the clock) is in none.
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
    """What changes of a letter when it is put up to be reprocessed, and when it is decided."""

    id: int
    outcome: Outcome
    attempts: int
    decided_at: datetime
    next_attempt_at: datetime | None
    is_shadow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The kept letters of a group that one act puts up, which are all of them unless there are very many."""

    letters: CappedCount
    """Capped: there are more, which this act does not reach."""
    digest: str
    """Another one when one of these letters is put up or decided, or when there is another among them."""


def brake_version(state: BrakeState) -> str:
    return _version("brake", state.tripped_at, state.tripped_by, state.released_at, state.released_until)


def letter_version(record: LetterRecord) -> str:
    return letters_version([record])


def letters_version(letters: Iterable[LetterRecord | LetterState]) -> str:
    """Of those named together, in whatever order."""
    return _version("letters", *_parts(letters))


def group_version(digest: str) -> str:
    """Of the letters of a group that one act puts up: what it does not reach, it does not depend on."""
    return _version("group", digest)


def _parts(letters: Iterable[LetterRecord | LetterState]) -> list[object]:
    # With when it is due: a letter that was put up may stay unrelated for ever, or wait behind the brake.
    return [
        part
        for one in sorted(letters, key=lambda letter: letter.id)
        for part in (one.id, one.outcome.value, one.attempts, one.decided_at, one.next_attempt_at)
    ]


def _version(*parts: object) -> str:
    text = "\x1f".join(part.isoformat() if isinstance(part, datetime) else repr(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
