"""Dead letters on record as people find and read them: records, filters, pages, counts, and versions of a state. Pure.

An operation names the version of the state that its operator saw. When the state has another version by then, nothing
is done. Values that change all the time and decide nothing (a count of repeats, the clock) are in no version.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.safety.brake import BrakeState
from dlq_handler.text import in_units


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
class LetterFilter:
    """Filters are combined with AND. None: not filtered."""

    group: str | None = None
    category: Category | None = None
    reason: str | None = None
    outcome: Outcome | None = None
    worker_id: int | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Received before this moment."""
    search: str | None = None
    """The whole id of an execution, a record, a message or a correlation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    records: list[LetterRecord]
    """Newest first, without bodies and headers."""
    older: int | None
    """`before_id` of the page after this one; None: this is the last."""
    newer: int | None
    """`after_id` of the page before this one; None: this is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedCount:
    count: int
    is_capped: bool
    """True: there are at least this many."""

    def __str__(self) -> str:
        return f"{self.count:,}+" if self.is_capped else f"{self.count:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CameBefore:
    """Dead letters that were received, whether still on record or not."""

    has_any: bool
    """Also those of shadow mode, and those deleted by retention."""
    last_at: datetime | None
    """Of those that are counted in groups."""


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


def no_record_sentence(kept_seconds: float, subject: str | None = None) -> str:
    """`kept_seconds`: the retention of the kind of record that was asked for."""
    what = "such record" if subject is None else f"record of {subject}"
    return f"No {what}. Records are kept for {in_units(kept_seconds)}; it may have been deleted."


def no_letters_sentence(came: CameBefore, now: datetime, kept: RetentionPolicy) -> str:
    """For a list that is empty although dead letters arrived once: "waiting for the first one" would be untrue."""
    resolved, unresolved = in_units(kept.resolved_seconds), in_units(kept.unresolved_seconds)
    last = ""
    if came.last_at is not None:
        ago = in_units(max(0.0, (now - came.last_at).total_seconds()))
        last = f" The last one arrived on {came.last_at.astimezone(UTC):%Y-%m-%d %H:%M}Z, {ago} ago."
    return (
        f"No dead letter is on record.{last} Resolved ones are kept for {resolved}, others for {unresolved}."
    )
