"""Pages of rows that a scan reads along the host's (status, updated) index."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

Found = TypeVar("Found")
Key = TypeVar("Key")

Place = tuple[datetime, int]
"""A place in the order of a scan: `updated` and id of the last row read."""

BEGINNING: Place = (datetime(1970, 1, 1, tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Found, Key]):
    """Bounded by the rows that are read, not by those that are found: a statement that reads on until it has found
    enough would read a whole table on a day without findings.
    """

    found: Sequence[Found]
    last: Key | None
    """The place after which the next page begins; None: this is the last page."""
