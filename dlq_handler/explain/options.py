"""What an explanation needs of the settings."""

from dataclasses import dataclass

from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.timeouts.case import StaleLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainPolicy:
    limits: StaleLimits
    brake: BrakeOptions
    names: WorkerQueueNames
    lease: str
    """Name of the leader's lease."""
    is_monitored: bool
    is_shadow: bool
