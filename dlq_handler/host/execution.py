"""An execution as the sidecar sees it, and the only status changes the sidecar may make."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType


class ExecutionStatus(StrEnum):
    REQUESTED = "requested"
    SCHEDULING = "scheduling"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELING = "canceling"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    ABANDONED = "abandoned"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset(
    {
        ExecutionStatus.COMPLETED,
        ExecutionStatus.FAILED,
        ExecutionStatus.CANCELLED,
        ExecutionStatus.TIMEOUT,
        ExecutionStatus.ABANDONED,
    }
)

# The whole of what we may do to an execution. A status that is not a key here is never written over: the statement
# that writes asks this table too, so that no decide can talk it into more.
TRANSITIONS: Mapping[ExecutionStatus, frozenset[ExecutionStatus]] = MappingProxyType(
    {
        # The first two only where the operator asked for it: nothing was dispatched that could have died.
        ExecutionStatus.REQUESTED: frozenset({ExecutionStatus.FAILED}),
        ExecutionStatus.SCHEDULING: frozenset({ExecutionStatus.FAILED}),
        ExecutionStatus.SCHEDULED: frozenset({ExecutionStatus.FAILED}),
        ExecutionStatus.RUNNING: frozenset({ExecutionStatus.FAILED, ExecutionStatus.ABANDONED}),
        ExecutionStatus.CANCELING: frozenset({ExecutionStatus.CANCELLED}),
    }
)


def may_become(status: ExecutionStatus) -> frozenset[ExecutionStatus]:
    """The statuses from which an execution may be brought to this one."""
    return frozenset(before for before, after in TRANSITIONS.items() if status in after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One row of the host's execution table, as it was when its lock was taken."""

    id: int
    status: ExecutionStatus
    updated: datetime
    worker_id: int | None
    action_id: int | None
    action_ref: str
    is_workflow_task: bool = False

    def ended(self, status: ExecutionStatus) -> "Execution":
        """The row as a later letter of the same batch must see it: reprocessed it is terminal."""
        # Spelt out because dataclasses.replace takes three times as long, and this is done for every letter.
        return Execution(
            id=self.id,
            status=status,
            updated=self.updated,
            worker_id=self.worker_id,
            action_id=self.action_id,
            action_ref=self.action_ref,
            is_workflow_task=self.is_workflow_task,
        )
