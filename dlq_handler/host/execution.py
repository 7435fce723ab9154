"""An execution, the only status changes that dlq-handler may make to it, and pages of executions that a scan reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar


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

# A status that is not a key here is never written over: the statement that ends executions checks this table too.
TRANSITIONS: Mapping[ExecutionStatus, frozenset[ExecutionStatus]] = MappingProxyType(
    {
        # The first two only on request of the operator: nothing was dispatched that could have expired.
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
        """The row as a later dead letter of the same batch must see it."""
        # Not by dataclasses.replace, which takes three times as long: this is done for every dead letter.
        return Execution(
            id=self.id,
            status=status,
            updated=self.updated,
            worker_id=self.worker_id,
            action_id=self.action_id,
            action_ref=self.action_ref,
            is_workflow_task=self.is_workflow_task,
        )


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
