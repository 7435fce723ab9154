"""Ends of executions as the host's tables show them, with the host's answer to each. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.host.execution import Execution, ExecutionStatus

HANDLER_ERROR = "Worker queue TTL expired"
"""Error that Attune's dead-letter handler writes. It publishes no event. dlq-handler adds `failed_by` to this error."""

STOCK_MONITOR = "execution_timeout_monitor"
"""The signature of Attune's own timeout monitor: `failed_by` or `abandoned_by` of a result."""

ENDED_BY_MONITOR = frozenset({ExecutionStatus.FAILED, ExecutionStatus.ABANDONED})


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWithoutEvent:
    """An execution that has ended, and whose completion event may be lost."""

    execution: Execution
    result: object
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEnd:
    """An end that dlq-handler wrote, and the row as it is now."""

    ended_at: datetime
    ended_by: str
    replica: str
    execution: Execution
    signature: str | None
    """Who signed the row's result: `failed_by`, `abandoned_by` or `cancelled_by`."""
    heartbeat_age_seconds: float | None
    """Of the worker that the row names now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnconsumedInterval:
    """The queue of completion events had no consumer at every check from the first to the last. Database clock."""

    began_at: datetime
    last_observed_at: datetime

    @property
    def evidence(self) -> dict[str, object]:
        return {
            "no_consumer_from": self.began_at.isoformat(),
            "no_consumer_until": self.last_observed_at.isoformat(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTask:
    """What the host did about the end of a workflow task."""

    parent_status: str | None
    """None: the task has no parent any more."""
    is_retried: bool
    is_advanced: bool
    """The record of the workflow lists the task as completed or failed."""
    is_workflow_readable: bool
    """False: dlq-handler may not read the records of workflows."""
    retry_count: object
    max_retries: object
    retry: object
    """The retry settings of the task in the graph of its workflow, as the host wrote them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorEnd:
    """An execution that Attune's own timeout monitor ended, and whose completion event may be lost."""

    end: EndWithoutEvent
    interval: UnconsumedInterval | None
    """It ended within this interval. None: it was found by the slot that it still holds."""
    task: EndedTask | None
    """None: it is no task of a workflow."""
