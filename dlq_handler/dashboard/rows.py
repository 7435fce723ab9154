"""Dead letters and their groups as rows of a table. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from dlq_handler.dashboard.words import NONE, State, iso
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Group, GroupCount, title_in
from dlq_handler.dead_letters.listing import LetterRecord
from dlq_handler.history.history import Timeline


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
    """None: it is resolved. That its execution failed is no state of the dead letter."""
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


_ACTIONS_SHOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    id: str
    href: str
    title: str
    queue: str
    actions: str
    letters: int
    failed_by_letter: int
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSection:
    span: str
    rows: Sequence[GroupRow]
    count: int
    until: datetime
    """Letters are counted by the minute: of a moment of the past the end of its minute."""
    more_href: str | None
    """None: these are all of them."""


def group_rows(
    counts: Iterable[GroupCount],
    timelines: Sequence[Timeline],
    names: Mapping[int, str],
    *,
    ttl_seconds: float,
) -> Sequence[GroupRow]:
    return [
        GroupRow(
            id=one.group.id,
            href=f"/groups/{one.group.id}",
            title=title_in(one.group, timelines, names, ttl_seconds=ttl_seconds, last_at=one.last_at),
            queue=one.group.queue or NONE,
            actions=actions(one.group),
            letters=one.letters,
            failed_by_letter=one.failed_by_letter,
            last_at=one.last_at,
        )
        for one in counts
    ]


def actions(group: Group) -> str:
    shown = group.actions[:_ACTIONS_SHOWN]
    more = len(group.actions) - len(shown) + group.more_actions
    return (", ".join(shown) + (f" +{more}" if more else "")) or NONE


def group_section(
    found: Sequence[GroupRow], *, count: int, span: str, since: datetime, until: datetime
) -> GroupSection:
    window = urlencode({"since": iso(since), "until": iso(until)})
    return GroupSection(
        span=span,
        rows=found,
        count=count,
        until=until,
        more_href=f"/groups?{window}" if count > len(found) else None,
    )
