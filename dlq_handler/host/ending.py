"""An ending: the one status change we make to an execution, with what is written and what is announced.

Letters and the monitor end in the same three fields, so that there is one way to write and one way to tell.
"""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.host.execution import TRANSITIONS, Execution, ExecutionStatus
from dlq_handler.host.messages import Notice, ended_notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """`execution` is the row as it was read: nothing is written unless it still is like that."""

    execution: Execution
    becomes: ExecutionStatus
    result: dict[str, object]
    notice: Notice


def ending(
    execution: Execution,
    becomes: ExecutionStatus,
    result: dict[str, object],
    *,
    now: datetime,
    correlation_id: str | None = None,
) -> Ending:
    """`now` is the database's clock. Raises ValueError for a change that we may not make."""
    if becomes not in TRANSITIONS.get(execution.status, ()):
        raise ValueError(f"an execution that is {execution.status} is not ours to make {becomes}")
    notice = ended_notice(execution, becomes, result, correlation_id=correlation_id, now=now)
    return Ending(execution=execution, becomes=becomes, result=result, notice=notice)
