"""The story of one execution as a timeline: when, how long after the moment before, who, and what. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.dashboard.words import lapse, sentence
from dlq_handler.dead_letters.record import LetterRecord
from dlq_handler.explain.story import Kind, Moment
from dlq_handler.operations.operation import Action, Operation

# The actor of a moment, unless the record names one.
_WHO: Mapping[Kind, str] = {
    Kind.CREATED: "api",
    Kind.DISPATCHED: "executor",
    Kind.MOVED: "executor",
    Kind.DIED: "broker",
    Kind.DECIDED: "us",
    Kind.CHANGED: "us",
    Kind.COMPLETION_PUBLISHED: "us",
    Kind.UNCONFIRMED: "us",
    Kind.REVERTED_BY_WORKER: "worker",
    Kind.ENDED: "executor",
    Kind.TOUCHED: "executor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    at: datetime
    gap: str | None
    """Since the one before."""
    who: str
    what: str
    by: str | None
    evidence: Sequence[tuple[str, str]]


def timeline(moments: Sequence[Moment], operations: Sequence[Operation]) -> Sequence[Entry]:
    moments_ = [
        *((one.at, _who(one), _text(one), one.by, facts(one.evidence)) for one in moments),
        *((one.at, "operator", _done(one), one.username, ()) for one in operations),
    ]
    moments_.sort(key=lambda one: one[0])
    entries: list[Entry] = []
    for at, who, what, by, evidence in moments_:
        gap = None if not entries else f"+{lapse((at - entries[-1].at).total_seconds())}"
        entries.append(Entry(at=at, gap=gap, who=who, what=what, by=by, evidence=evidence))
    return entries


def operations_on(letters: Sequence[LetterRecord], operations: Sequence[Operation]) -> Sequence[Operation]:
    """Those of an operator that were about one of these letters, or about a group of theirs."""
    ids = {str(one.id) for one in letters}
    groups = {one.group_id for one in letters}
    return [
        one
        for one in operations
        if one.action in (Action.LETTERS_REPROCESS, Action.LETTER_BODY_READ)
        and one.target is not None
        and (
            (one.target.startswith("letter") and ids & set(re.findall(r"\d+", one.target)))
            or (one.target.startswith("group ") and one.target.removeprefix("group ") in groups)
        )
    ]


def facts(evidence: Mapping[str, object]) -> Sequence[tuple[str, str]]:
    """Name and value; what is inside of something has the outer name before its own."""
    return list(_flat(evidence, ""))


def _flat(value: object, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _flat(one, f"{name}.{inner}" if name else str(inner))
    elif value is not None:
        # A list as JSON, not as Python writes it.
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _who(one: Moment) -> str:
    """To run is the worker's, whatever else moves a row is the executor's."""
    is_run = one.kind is Kind.MOVED and ("→ running" in one.text or one.text.startswith("running"))
    return "worker" if is_run else _WHO[one.kind]


def _text(one: Moment) -> str:
    shadow = "(shadow: nothing was done) " if one.is_shadow else ""
    return f"{shadow}{sentence(one.kind.value).rstrip('.')}: {one.text}"


def _done(one: Operation) -> str:
    word = "Read the raw body" if one.action == Action.LETTER_BODY_READ else "Queued for reprocessing"
    comment = f" Comment: {one.comment}" if one.comment else ""
    return f"{word} ({one.target}): {one.result}.{comment}"
