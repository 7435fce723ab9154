"""What a batch of dead letters has put into the database."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlq_handler.dead_letters.record import Entry
from dlq_handler.endings.outbox_sql import OutboxEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one transaction did to executions, and the records to write about it."""

    entries: Sequence[Entry]
    changed: int
    """Executions that were ended."""
    notices: Sequence[OutboxEntry]
    """Their completion events, as far as this replica has the lease."""
    left_out: frozenset[str]
    """Keys of dead letters that the brake has no room for: nothing was written about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What one call put into the database."""

    outbox: tuple[OutboxEntry, ...]
    """Completion events that this replica has the lease of: to be published now."""
    leased_at: float
    """The process clock before the first of these leases was taken."""
    held_over: frozenset[str] = frozenset()
    """Keys of dead letters to decide later: their execution is locked, or the brake has no room for them."""

    def __add__(self, other: "Committed") -> "Committed":
        return Committed(
            outbox=self.outbox + other.outbox,
            leased_at=min(self.leased_at, other.leased_at),
            held_over=self.held_over | other.held_over,
        )
