"""Executions that Attune's own timeout monitor ended lately: it fails work that a busy worker holds and then runs."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttunesEnds:
    span_seconds: float
    count: int = 0
    first_at: datetime | None = None
    """Of those in the span; None: there is none."""
