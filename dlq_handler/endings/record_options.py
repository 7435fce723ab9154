"""What is the same for every record of a replica. Pure."""

from dataclasses import dataclass, field

from dlq_handler.host.messages import Destination
from dlq_handler.host.worker import WorkerQueueNames


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    replica: str
    destination: Destination
    """Of completion events."""
    names: WorkerQueueNames = field(default_factory=WorkerQueueNames)
    is_shadow: bool = False
    """True: the records say what would have been done."""
