"""Groups of letters as rows of a table. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from dlq_handler.dashboard.words import NONE, iso
from dlq_handler.dead_letters.group import Group, GroupCount, title_in
from dlq_handler.history.history import Timeline

_ACTIONS_SHOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    id: str
    href: str
    title: str
    queue: str
    actions: str
    letters: int
    failed: int
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


def rows(
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
            failed=one.failed,
            last_at=one.last_at,
        )
        for one in counts
    ]


def actions(group: Group) -> str:
    shown = group.actions[:_ACTIONS_SHOWN]
    more = len(group.actions) - len(shown) + group.more_actions
    return (", ".join(shown) + (f" +{more}" if more else "")) or NONE


def section(
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
