"""An execution that is requested or scheduling, as the tables show it. Values only."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.host.execution import Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscheduled:
    """A row that is requested or scheduling, with all that may allow it to wait."""

    execution: Execution
    waits_for_slot: bool
    """Its action has a limit, and it waits for a slot."""
    next_retry_at: str | None
    """As the workflow wrote it; None when it wrote none."""
    is_workflow_parent: bool
    republished_at: datetime | None
    """When dlq-handler last published its request; None: never."""
    requests: int = 0
    """How often dlq-handler has published its request, whatever the state of the row was."""
    now: datetime
    """The clock of the database when the row was read."""
    has_unconfirmed: bool = False
    """The broker has not confirmed a message of it yet: it waits in the outbox."""
