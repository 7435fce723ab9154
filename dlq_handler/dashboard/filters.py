"""The letters' filters: from the address to a `LetterFilter` and back, as chips to take off, and as a command. Pure.

All of it stands in the address, so that a link shows another person the same letters.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlencode

from dlq_handler.dashboard.words import iso, joined
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.listing import LetterFilter
from dlq_handler.web.errors import Refused

Choice = TypeVar("Choice", bound=StrEnum)

# In the order of the form. The names are those of the command's options.
NAMES = ("group", "category", "reason", "outcome", "worker", "action", "since", "until", "search")
# What else this page's own links and its script put into the address.
_OTHERS = ("before", "after", "seen", "fragment")
# A moment of the past: kept in every link of the page, and no option of the command.
AT = "at"
_TIMES = ("since", "until")
_LABELS = {"since": "from", "until": "to", "search": "id", AT: "as of"}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LARGEST_ID = 2**63 - 1
_MOST_PROBLEMS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    text: str
    href: str
    """The same page without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the address asks for, and what in it cannot be understood."""

    wanted: LetterFilter
    given: Mapping[str, str]
    """As it was written, by name; what is empty is left out."""
    problems: Sequence[str]
    at: datetime | None = None
    """The moment of the past that the page shows; None: now."""

    @property
    def chips(self) -> Sequence[Chip]:
        return [
            Chip(text=f"{_LABELS.get(name, name)}: {value}", href=self.href(**{name: None}))
            for name, value in self.given.items()
        ]

    @property
    def command(self) -> str:
        options = [part for name, value in self._options().items() for part in (f"--{name}", value)]
        return shlex.join(["dlq-handler", "letters", "list", *options])

    def _options(self) -> Mapping[str, str]:
        """A terminal counts `1h` back from when it is typed, so of a moment of the past the times are written out."""
        options = {name: value for name, value in self.given.items() if name != AT}
        if self.at is not None:
            for name, when in zip(_TIMES, (self.wanted.since, self.wanted.until), strict=True):
                if when is not None:
                    options[name] = iso(when)
        return options

    def href(self, **changed: str | int | None) -> str:
        """This page with something changed; None takes it off."""
        asked = {**self.given, **{name: value for name, value in changed.items() if value is not None}}
        kept = {
            name: value for name, value in asked.items() if name not in changed or changed[name] is not None
        }
        return f"/letters?{urlencode(kept)}" if kept else "/letters"


def read(parameters: Mapping[str, str], *, now: datetime) -> Asked:
    given = {name: value for name in (*NAMES, AT) if (value := parameters.get(name, "").strip())}
    # Left alone, a mistyped name would show all letters as if they were those asked for.
    problems = [
        f"{name[:40]!r} is no filter: there are {', '.join(NAMES)}"
        for name in parameters
        if name not in (*NAMES, *_OTHERS, AT)
    ][:_MOST_PROBLEMS]

    def worker() -> int | None:
        found = read_id(given.get("worker"))
        if found is None and "worker" in given:
            problems.append("worker is the number of one, such as 7")
        return found

    def choice(name: str, kind: type[Choice]) -> Choice | None:
        text = given.get(name)
        if text is None or text in set(kind):
            return None if text is None else kind(text)
        problems.append(f"{name} is one of {', '.join(kind)}")
        return None

    def moment(name: str, until: datetime) -> datetime | None:
        text = given.get(name)
        found = None if text is None else read_moment(text, until)
        if text is not None and found is None:
            problems.append(no_moment(_LABELS[name]))
        return found

    at = moment(AT, now)
    # To the second, as on the first page: the same link is the same moment.
    at = None if at is None else min(at, now).replace(microsecond=0)
    # "The last hour" of a link that is opened in the morning is that of the night.
    since, until = (moment(name, at or now) for name in _TIMES)
    if at is not None:
        until = at if until is None else min(until, at)
    wanted = LetterFilter(
        group=given.get("group"),
        category=choice("category", Category),
        reason=given.get("reason"),
        outcome=choice("outcome", Outcome),
        worker_id=worker(),
        action=given.get("action"),
        since=since,
        until=until,
        search=given.get("search"),
    )
    return Asked(wanted=wanted, given=given, problems=problems, at=at)


def read_id(text: str | None) -> int | None:
    """None: no number that an id can have."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > len(str(_LARGEST_ID)):
        return None
    return int(text) if int(text) <= _LARGEST_ID else None


def refuse_unknown(asked: Iterable[str], known: Sequence[str]) -> None:
    """A mistyped name that is ignored would show another answer as if it were the one asked for."""
    for name in asked:
        if name not in known:
            raise Refused(422, f"There is no {name[:40]!r} to ask this page for, only {joined(known)}.")


def no_moment(label: str) -> str:
    return f"{label} is a time such as 2026-11-16 02:26 (UTC), or 30m, 24h, 7d ago"


def read_moment(text: str, now: datetime) -> datetime | None:
    """`30m`, `24h`, `7d` back from now, or ISO 8601 in UTC. None: neither."""
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isascii() and number.isdigit():
            return now - timedelta(seconds=int(number) * _UNITS[unit])
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
