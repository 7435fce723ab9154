"""What the live view draws: the act, who lives, and what the auditor sees."""

from dataclasses import dataclass, field
from enum import Enum

from sandbox.demo.observed import ObservedState


class Condition(Enum):
    """Of one part, as the demo left it."""

    ABSENT = "absent"
    STARTING = "starting"
    ALIVE = "alive"
    KILLED = "killed"
    HANGS = "hangs"


@dataclass(slots=True)
class Picture:
    observed: ObservedState
    act: str = ""
    look_at: str = ""
    conditions: dict[str, Condition] = field(default_factory=dict)
