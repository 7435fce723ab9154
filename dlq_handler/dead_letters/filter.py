"""Filters and pages of dead letters: the same for the dashboard, the API and the command line."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.record import LetterRecord


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
