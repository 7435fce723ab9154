"""Which letters are asked for: the same for the dashboard, the API and the command line."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.record import LetterRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """None everywhere: all of them. What is set must hold together."""

    group: str | None = None
    category: Category | None = None
    reason: str | None = None
    outcome: Outcome | None = None
    worker_id: int | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Up to, and not including, this moment of their arrival."""
    search: str | None = None
    """An execution's id, a letter's, a message's or a correlation id: the whole of it."""


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
    """True: at least so many. Nobody counted further."""

    def __str__(self) -> str:
        return f"{self.count:,}+" if self.is_capped else f"{self.count:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CameBefore:
    """What is remembered of letters that came, on record or not."""

    has_any: bool
    """Also one that does not count, and one that everything else has forgotten."""
    last_at: datetime | None
    """Of those that count."""
