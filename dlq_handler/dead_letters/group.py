"""Groups of dead letters: those of the same category and the same queue. Pure.

The id of a group is a hash of its key and of no time, so that a link to it is valid for as long as the group is kept,
and two replicas use the same id. What a sender can invent (ids, positions in a text) is no part of it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, assert_never

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import RESCUED, DeadLetter, ParseProblem
from dlq_handler.dead_letters.record import Entry
from dlq_handler.history.history import Timeline
from dlq_handler.host.names import DISPATCH_MESSAGE_TYPE
from dlq_handler.workers.availability import Availability

ACTIONS_SHOWN = 5
# Enough to say "and 20 more", and a bound on a row that every batch reads.
ACTIONS_KEPT = 25

_LONGEST_TEXT = 200

# With a short TTL a message expires before its worker counts as unavailable, which takes 90 s by default.
UNAVAILABLE_WITHIN = timedelta(minutes=2)


class Category(StrEnum):
    """Why dlq-handler received a dead letter. The outcome says what became of it."""

    NOT_TAKEN = "not_taken"
    """It expired: no consumer received it in time."""
    QUEUE_FULL = "queue_full"
    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery_limit"
    RESCUED = "rescued"
    """dlq-handler drained it from the queue of an unavailable or retired worker."""
    ARCHIVED = "archived"
    """It is no dispatch, and its queue was retired."""
    NO_DEATH = "no_death"
    """It has no x-death: it was published straight to the intake queue."""
    OTHER_DEATH = "other_death"
    """Its x-death reason is unknown to this version."""
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
_DETAILED = frozenset({Category.UNREADABLE, Category.UNRELATED, Category.ARCHIVED})
_TITLES = {
    Category.NOT_TAKEN: "Not taken in time",
    Category.QUEUE_FULL: "Queue full",
    Category.REJECTED: "Rejected",
    Category.DELIVERY_LIMIT: "Delivered too often",
    Category.RESCUED: "Rescued",
    Category.ARCHIVED: "Archived",
    Category.NO_DEATH: "Published without a death",
    Category.OTHER_DEATH: "Died of another reason",
    Category.UNKNOWN_EXECUTION: "Unknown execution",
    Category.UNRELATED: "Unrelated",
    Category.UNREADABLE: "Unreadable",
}
_PROBLEM_TEXTS: Mapping[str, str] = {
    ParseProblem.PROPERTIES_UNDECODABLE: "AMQP properties cannot be decoded",
    ParseProblem.BODY_NOT_UTF8: "body is not UTF-8",
    ParseProblem.BODY_NOT_JSON: "body is not JSON",
    ParseProblem.BODY_NESTED_TOO_DEEPLY: "body is nested too deeply",
    ParseProblem.BODY_NOT_AN_ENVELOPE: "body is JSON, but not an envelope",
    ParseProblem.MESSAGE_TYPE_MISSING: "envelope without message_type",
    ParseProblem.PAYLOAD_MISSING: "envelope without payload",
    ParseProblem.EXECUTION_ID_MISSING: "execution_id is missing",
    ParseProblem.EXECUTION_ID_NULL: "execution_id is null",
    ParseProblem.EXECUTION_ID_NOT_INTEGER: "execution_id is not an integer of 64 bits",
    ParseProblem.LARGE_BODY_WITHOUT_EXECUTION_ID: "body too large, and no execution_id at its beginning",
    ParseProblem.LARGE_BODY_WITHOUT_MESSAGE_TYPE: "body too large, and no message_type at its beginning",
    ParseProblem.FIELDS_REFUSED: "the database refuses its fields",
    ParseProblem.PARSER_ERROR: "cannot be read",
}


class GroupKey(NamedTuple):
    category: Category
    reason: str
    queue: str | None
    """The queue of the first death; None: unknown."""
    detail: str | None = None
    """The `ParseProblem` of an unreadable dead letter, the message type of an unrelated or archived one.

    None: unknown.
    """

    @property
    def id(self) -> str:
        """Ten hex digits."""
        return _id_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group with all that was counted since it began."""

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
    failed_by_letter: int
    """Executions that these dead letters failed. The timeout monitor, or the host, ended the others."""
    actions: tuple[str, ...]
    """Those that came first."""
    more_actions: int
    """Beyond them, as far as they were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """The dead letters of a group within a window."""

    group: Group
    letters: int
    failed_by_letter: int
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteCount:
    minute: datetime
    reason: str
    letters: int


def group_key_of(entry: Entry) -> GroupKey:
    """A dead letter that the database refused (`update_failed`) is grouped by its death, not by the refusal."""
    letter = entry.letter
    category, queue = _category_of(letter, entry.outcome), letter.first_death_queue
    return GroupKey(
        category,
        letter.reason[:_LONGEST_TEXT],
        None if queue is None else queue[:_LONGEST_TEXT],
        _detail_of(category, letter) if category in _DETAILED else None,
    )


# Thousands of dead letters belong to a few groups.
@lru_cache(maxsize=4096)
def _id_of(key: GroupKey) -> str:
    # None differs from an empty text; no text contains one of these two characters.
    text = "\x1f".join("\x00" if part is None else part for part in key)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:10]


def _category_of(letter: DeadLetter, outcome: Outcome) -> Category:
    if letter.parse_error is not None and outcome is not Outcome.ARCHIVED:
        return Category.UNREADABLE
    match outcome:
        case Outcome.UNREADABLE:
            return Category.UNREADABLE
        case Outcome.UNRELATED:
            return Category.UNRELATED
        case Outcome.ARCHIVED:
            return Category.ARCHIVED
        case Outcome.UNKNOWN_EXECUTION:
            return Category.UNKNOWN_EXECUTION
        case (
            Outcome.FAILED
            | Outcome.ALREADY_TERMINAL
            | Outcome.STALE_ATTEMPT
            | Outcome.SUPERSEDED
            | Outcome.LEFT_TO_MONITOR
            | Outcome.UPDATE_FAILED
            | Outcome.DEFERRED
        ):
            return _category_of_death(letter)
        case never:
            assert_never(never)


def _category_of_death(letter: DeadLetter) -> Category:
    if letter.death is None:
        return Category.NO_DEATH
    return _OF_REASON.get(letter.reason, Category.OTHER_DEATH)


def _detail_of(category: Category, letter: DeadLetter) -> str | None:
    if category is Category.UNREADABLE:
        # Not the parse error: it names positions and sizes, and each dead letter would be a group of its own.
        return None if letter.parse_problem is None else letter.parse_problem.value
    return None if letter.message_type is None else letter.message_type[:_LONGEST_TEXT]


def waited(expired_at: datetime, *, ttl_seconds: float) -> tuple[datetime, datetime]:
    """When its worker must have been unavailable to be the reason: a message that expired had waited for one TTL."""
    return expired_at - timedelta(seconds=ttl_seconds), expired_at + UNAVAILABLE_WITHIN


def title_in(
    group: Group,
    timelines: Sequence[Timeline],
    names: Mapping[int, str],
    *,
    ttl_seconds: float,
    last_at: datetime | None = None,
) -> str:
    """The title names the worker, and whether it was unavailable when the newest dead letter came.

    `last_at`: of the newest dead letter, where a window was asked for. `timelines` must begin one TTL before it.
    """
    of_worker = [one for one in timelines if one.worker_id == group.worker_id]
    name = names.get(group.worker_id or 0) or next((one.name for one in of_worker), None)
    since, until = waited(last_at or group.last_at, ttl_seconds=ttl_seconds)
    was_unavailable = any(
        one.availability is Availability.UNAVAILABLE and one.since <= until and one.until >= since
        for timeline in of_worker
        for one in timeline.segments
    )
    return title_of(group, worker_name=name, was_unavailable=was_unavailable)


def title_of(group: Group, *, worker_name: str | None, was_unavailable: bool) -> str:
    if _is_rejected_request(group):
        return "Requests rejected for lack of a worker"
    title = _TITLES[group.category]
    if group.category is Category.NOT_TAKEN and was_unavailable:
        title = "Worker unavailable"
    subject = detail_text_of(group) if group.category in _DETAILED else worker_name or group.queue
    return f"{title}: {subject}" if subject else title


def detail_text_of(group: Group) -> str | None:
    """The detail in words. A problem that only a newer version knows is shown by its name."""
    if group.category is not Category.UNREADABLE or group.detail is None:
        return group.detail
    return _PROBLEM_TEXTS.get(group.detail, group.detail)


def _is_rejected_request(group: Group) -> bool:
    """A request that the scheduler rejected: the sender is not at fault."""
    is_request = group.category is Category.UNRELATED and group.detail == DISPATCH_MESSAGE_TYPE
    return is_request and group.reason == "rejected" and group.worker_id is None
