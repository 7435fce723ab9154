"""An event: a change that open pages show at once, and that the chart shows later."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Topic(StrEnum):
    """The subject that changed: pages reload the sections of this topic."""

    LETTERS = "letters"
    WORKERS = "workers"
    BRAKE = "brake"
    GATE = "gate"
    REPLICA = "replica"
    BROKER = "broker"
    DIAGNOSIS = "diagnosis"
    AUDIT = "audit"
    TOPOLOGY = "topology"
    FLOWS = "flows"


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
FLOW_CHANGED = "flow.changed"
OPERATION_RECORDED = "operation.recorded"

# Kinds that the chart marks. A late worker is visible in its timeline only.
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
    """In the order of commits: a reader that has seen one has seen all smaller ones."""
    at: datetime
    topic: str
    kind: str
    subject: str | None
    """A worker's name, a cause of the safety gate, the name of a replica."""
    detail: str | None
    replica: str
    """The replica that recorded it."""
