"""An event: something changed that a person who watches wants to see at once, or to find on the chart later."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Topic(StrEnum):
    """What of the page is another one now."""

    LETTERS = "letters"
    WORKERS = "workers"
    BRAKE = "brake"
    GATE = "gate"
    REPLICA = "replica"
    BROKER = "broker"
    DIAGNOSIS = "diagnosis"
    AUDIT = "audit"
    TOPOLOGY = "topology"


LETTERS_DECIDED = "letters.decided"
WORKER_UNAVAILABLE = "worker.unavailable"
WORKER_LATE = "worker.late"
WORKER_AVAILABLE = "worker.available"
BRAKE_TRIPPED = "brake.tripped"
BRAKE_RELEASED = "brake.released"
GATE_CLOSED = "gate.closed"
GATE_OPENED = "gate.opened"
REPLICA_STARTED = "replica.started"
REPLICA_STOPPED = "replica.stopped"
DIAGNOSIS_CHANGED = "diagnosis.changed"
OPERATION_RECORDED = "operation.recorded"

# What stands as a mark on the chart. A worker that is late only is in its timeline.
MARKERS = frozenset(
    {
        WORKER_UNAVAILABLE,
        WORKER_AVAILABLE,
        BRAKE_TRIPPED,
        BRAKE_RELEASED,
        GATE_CLOSED,
        GATE_OPENED,
        REPLICA_STARTED,
        REPLICA_STOPPED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    id: int
    """In the order of commits: whoever has seen one has seen all with a smaller one."""
    at: datetime
    topic: str
    kind: str
    subject: str | None
    """Which one: a worker's name, a cause."""
    detail: str | None
    replica: str
    """Who tells it."""
