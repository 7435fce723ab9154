"""The version of a state that an operator sees and acts upon: a short hash of what the act depends on. Pure.

Whoever acts sends back the version that was shown; when another one holds by then, nothing is done. What changes all
the time and decides nothing (a count of repeats, the clock) is in none.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime

from dlq_handler.domain.brake import BrakeState
from dlq_handler.domain.letter_record import LetterRecord
from dlq_handler.domain.operation import Mute


def brake_version(state: BrakeState) -> str:
    return _version("brake", state.tripped_at, state.tripped_by, state.released_at, state.released_until)


def letter_version(record: LetterRecord) -> str:
    return letters_version([record])


def letters_version(records: Iterable[LetterRecord]) -> str:
    """Of those named together, in whatever order."""
    ordered = sorted(records, key=lambda record: record.id)
    parts = [part for one in ordered for part in (one.id, one.outcome.value, one.tries, one.judged_at)]
    return _version("letters", *parts)


def group_version(letter_ids: Iterable[int]) -> str:
    """Of the letters of a group that can be judged again."""
    return _version("group", *sorted(letter_ids))


def mute_version(mute: Mute | None) -> str:
    return _version("mute", None) if mute is None else _version("mute", mute.at, mute.until, mute.by)


def _version(*parts: object) -> str:
    text = "\x1f".join(part.isoformat() if isinstance(part, datetime) else repr(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
