"""The one status change that dlq-handler makes to an execution, with its result and its completion event."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.host.execution import TRANSITIONS, Execution, ExecutionStatus
from dlq_handler.host.messages import Destination, ExecutionMessage, completion_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """`execution` is the row as it was read: nothing is written unless it still is like that."""

    execution: Execution
    becomes: ExecutionStatus
    result: dict[str, object]
    message: ExecutionMessage
    """The completion event."""


def ending(
    execution: Execution,
    becomes: ExecutionStatus,
    result: dict[str, object],
    *,
    destination: Destination,
    now: datetime,
    correlation_id: str | None = None,
) -> Ending:
    """`now` is the database's clock. Raises ValueError for a change that dlq-handler may not make."""
    if becomes not in TRANSITIONS.get(execution.status, ()):
        raise ValueError(f"an execution that is {execution.status} must not become {becomes}")
    message = completion_event(
        execution, becomes, result, destination=destination, correlation_id=correlation_id, now=now
    )
    return Ending(execution=execution, becomes=becomes, result=result, message=message)
