"""Groups of letters: those that came for the same cause, of the same queue. Pure.

A group's id is a hash of what makes it one and of no time, so that a link to it is good for as long as the group is
kept, and two replicas name it alike. What a sender can make up freely (ids, positions in a text) is no part of it.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DISPATCH_MESSAGE_TYPE, RESCUED, DeadLetter
from dlq_handler.dead_letters.record import Entry

ACTIONS_SHOWN = 5
# So many are kept of each group: enough to say "and 20 more", and a bound on a row that every batch reads.
ACTIONS_KEPT = 25

_LONGEST_TEXT = 200


class Category(StrEnum):
    """What brought a letter to us. What became of it is its outcome."""

    NOT_TAKEN = "not_taken"
    """It expired: nobody took it out of its queue in time."""
    QUEUE_FULL = "queue_full"
    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery_limit"
    RESCUED = "rescued"
    """We took it out of the queue of a worker that is gone."""
    NO_DEATH = "no_death"
    """Nothing says that it died anywhere: somebody published it here."""
    OTHER_DEATH = "other_death"
    """It died of a reason that this version does not know."""
    UNKNOWN_EXECUTION = "unknown_execution"
    UNRELATED = "unrelated"
    UNREADABLE = "unreadable"


_OF_REASON = {
    "expired": Category.NOT_TAKEN,
    "maxlen": Category.QUEUE_FULL,
    "rejected": Category.REJECTED,
    "delivery_limit": Category.DELIVERY_LIMIT,
    RESCUED: Category.RESCUED,
}
_OF_OUTCOME = {
    Outcome.UNREADABLE: Category.UNREADABLE,
    Outcome.UNRELATED: Category.UNRELATED,
    Outcome.UNKNOWN_EXECUTION: Category.UNKNOWN_EXECUTION,
}
_DETAILED = frozenset({Category.UNREADABLE, Category.UNRELATED})
_TITLES = {
    Category.NOT_TAKEN: "Not taken in time",
    Category.QUEUE_FULL: "Queue full",
    Category.REJECTED: "Rejected",
    Category.DELIVERY_LIMIT: "Delivered too often",
    Category.RESCUED: "Rescued",
    Category.NO_DEATH: "Published without a death",
    Category.OTHER_DEATH: "Died of another reason",
    Category.UNKNOWN_EXECUTION: "Unknown execution",
    Category.UNRELATED: "Unrelated",
    Category.UNREADABLE: "Unreadable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    category: Category
    reason: str
    queue: str | None
    """The queue of the first death; None when nobody knows it."""
    detail: str | None = None
    """What is wrong with an unreadable letter, which type an unrelated one has."""

    @property
    def id(self) -> str:
        """Ten hex digits."""
        return _id_of((self.category, self.reason, self.queue, self.detail))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group with the counts of its whole life."""

    id: str
    category: Category
    reason: str
    queue: str | None
    detail: str | None
    worker_id: int | None
    """Whose queue it is; None for any other queue."""
    first_at: datetime
    last_at: datetime
    letters: int
    failed: int
    """Of these letters, how many failed their execution."""
    actions: tuple[str, ...]
    """Those that came first."""
    more_actions: int
    """Beyond them, as far as they were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """What came of a group within a window."""

    group: Group
    letters: int
    failed: int
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteCount:
    minute: datetime
    reason: str
    letters: int


def group_key_of(entry: Entry) -> GroupKey:
    """What the database refused (`update_failed`) is grouped by its death: the refusal is no cause of it."""
    category, reason, queue, detail = _parts_of(entry)
    return GroupKey(category=category, reason=reason, queue=queue, detail=detail)


def group_id_of(entry: Entry) -> str:
    return _id_of(_parts_of(entry))


_Parts = tuple[Category, str, str | None, str | None]


# Letters come by the thousand and are of a few groups.
@lru_cache(maxsize=4096)
def _id_of(parts: _Parts) -> str:
    # None and an empty text are two things; no text has one of these two characters in it.
    text = "\x1f".join("\x00" if part is None else part for part in parts)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:10]


def _parts_of(entry: Entry) -> _Parts:
    letter = entry.letter
    category = _category_of(letter, entry.outcome)
    queue = letter.first_death_queue
    return (
        category,
        letter.reason[:_LONGEST_TEXT],
        None if queue is None else queue[:_LONGEST_TEXT],
        _detail_of(category, entry) if category in _DETAILED else None,
    )


def _category_of(letter: DeadLetter, outcome: Outcome) -> Category:
    if letter.parse_error is not None:
        return Category.UNREADABLE
    if outcome in _OF_OUTCOME:
        return _OF_OUTCOME[outcome]
    if letter.death is None:
        return Category.NO_DEATH
    return _OF_REASON.get(letter.reason, Category.OTHER_DEATH)


def _detail_of(category: Category, entry: Entry) -> str | None:
    if category is Category.UNREADABLE:
        # After the colon comes what the parser said, with a position: each letter would be a group of its own.
        return (entry.letter.parse_error or entry.explanation).partition(":")[0][:_LONGEST_TEXT]
    message_type = entry.letter.message_type
    return None if message_type is None else message_type[:_LONGEST_TEXT]


def title_of(group: Group, *, worker_name: str | None, was_gone: bool) -> str:
    """`was_gone`: the worker whose queue it is was unavailable when its letters came."""
    if _is_declined(group):
        return "Requests turned down for want of a worker"
    title = _TITLES[group.category]
    if group.category is Category.NOT_TAKEN and was_gone:
        title = "Worker gone"
    subject = group.detail if group.category in _DETAILED else worker_name or group.queue
    return f"{title}: {subject}" if subject else title


def _is_declined(group: Group) -> bool:
    """Requests that the executor rejected. Nobody sent anything wrong; we are only not the ones to answer them."""
    is_request = group.category is Category.UNRELATED and group.detail == DISPATCH_MESSAGE_TYPE
    return is_request and group.reason == "rejected" and group.worker_id is None
