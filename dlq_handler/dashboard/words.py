"""How the pages say things: states with their signs, times, ages and counts. Pure.

Times are UTC, always; an unknown value is "?", never 0 and never green.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum

from dlq_handler.diagnosis.checks import Check, Component
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health
from dlq_handler.text import in_units
from dlq_handler.workers.availability import Availability

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|d)\b)")

UNKNOWN = "?"
NONE = "–"


class State(StrEnum):
    """Its value is the class in the style sheet. Colour is never alone: the sign and a word go with it."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    UNKNOWN = "unknown"

    @property
    def sign(self) -> str:
        return {State.OK: "✓", State.WARN: "!", State.BAD: "✕", State.UNKNOWN: "?"}[self]


COMPONENTS = {
    Component.DLQ_HANDLER: "dlq-handler",
    Component.BROKER: "Broker",
    Component.DATABASE: "Database",
    Component.WORKERS: "Workers",
    Component.SENDERS: "Senders",
    Component.EXECUTOR: "Executor",
}

# An operator's choice, and problems that no execution depends on.
_MILD = {Check.SHADOW_MODE, Check.UNUSABLE_LETTERS, Check.FLOWS, Check.LEAKED_QUEUES}


def state_of(diagnosis: Diagnosis) -> State:
    match diagnosis.health:
        case Health.OK:
            return State.OK
        case Health.UNKNOWN:
            return State.UNKNOWN
        case Health.PROBLEM:
            return State.WARN if diagnosis.check in _MILD else State.BAD


AVAILABILITIES = {
    Availability.AVAILABLE: (State.OK, "available"),
    Availability.LATE: (State.WARN, "late"),
    Availability.UNAVAILABLE: (State.BAD, "unavailable"),
    Availability.UNKNOWN: (State.UNKNOWN, "unknown"),
}


def hm(when: datetime) -> str:
    return f"{when.astimezone(UTC):%H:%M}"


def hms(when: datetime) -> str:
    return f"{when.astimezone(UTC):%H:%M:%S}"


def moment(when: datetime | None, now: datetime) -> str:
    """`02:26:04`, with its date unless that is today's."""
    if when is None:
        return UNKNOWN
    when = when.astimezone(UTC)
    is_today = when.date() == now.astimezone(UTC).date()
    return hms(when) if is_today else f"{when:%Y-%m-%d %H:%M:%S}"


def iso(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def ago(when: datetime | None, now: datetime) -> str:
    if when is None:
        return UNKNOWN
    return f"{in_units(max(0.0, (now - when).total_seconds()))} ago"


def lapse(seconds: float | None) -> str:
    """From one step to the next: here a tenth of a second matters."""
    if seconds is None:
        return UNKNOWN
    if abs(seconds) < 10:
        return f"{seconds:.1f} s"
    return in_units(seconds) if seconds >= 0 else f"−{in_units(-seconds)}"


def thousands(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def joined(words: Sequence[str]) -> str:
    """`broker, database and this replica`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def with_full_stop(text: str) -> str:
    """With a full stop. Its first letter stays: it may be the first of a name."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else f"{text}."


def sentence(text: str) -> str:
    """With a capital letter and a full stop: for text of dlq-handler that stands alone."""
    return with_full_stop(text[:1].upper() + text[1:])


def plain(text: str) -> str:
    """Without the backticks around commands: where there is no type to set them in."""
    return text.replace("`", "") if text.count("`") % 2 == 0 else text


def unbroken(text: str) -> str:
    """`33 min` stays on one line: torn apart it is read as another number."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def size(number: int) -> str:
    if number < 1024:
        return f"{number} B"
    return f"{number / 1024:.1f} KB" if number < 1024 * 1024 else f"{number / 1024 / 1024:.1f} MB"
