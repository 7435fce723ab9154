"""The ending of an execution, and what dlq-handler publishes in Attune's envelope: completion events and requests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid5

from dlq_handler.broker.outgoing import OutgoingMessage
from dlq_handler.host.execution import TRANSITIONS, Execution, ExecutionStatus
from dlq_handler.host.names import COMPLETED_MESSAGE_TYPE, DISPATCH_MESSAGE_TYPE

SOURCE_SERVICE = "dlq-handler"

_ENCODER = json.JSONEncoder(separators=(",", ":"))

# Fixed for ever: consumers recognize a repeated completion event by an id made from this.
MESSAGE_NAMESPACE = UUID("6f1d3c5e-2a0b-5c47-9e1d-0c8b4f7a9d21")


@dataclass(frozen=True, slots=True)
class Destination:
    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionMessage(OutgoingMessage):
    """One message about an execution, complete and ready to be published as often as it takes."""

    execution_id: int
    is_workflow_task: bool
    """Whether a repeat would do harm: a second `execution.completed` of a workflow task makes a second retry."""
    due_at: datetime | None = None
    """Not to be published before this moment; None: at once."""


def completion_id(execution_id: int, replaced_updated: datetime) -> UUID:
    """The same for every repeat of one status change, another for every other change."""
    return uuid5(MESSAGE_NAMESPACE, f"{execution_id}/{_microseconds(replaced_updated)}")


def request_id(execution_id: int, updated: datetime, number: int) -> UUID:
    """Of the request with this number for an execution; never that of a completion event."""
    return uuid5(MESSAGE_NAMESPACE, f"{execution_id}/{_microseconds(updated)}/request/{number}")


def completion_event(
    execution: Execution,
    becomes: ExecutionStatus,
    result: object,
    *,
    destination: Destination,
    correlation_id: str | None,
    now: datetime,
) -> ExecutionMessage:
    """`execution` is the row before the change; `now` is the database's clock."""
    message_id = completion_id(execution.id, execution.updated)
    correlation = _uuid(correlation_id) or message_id
    moment = rfc3339(now)
    payload = {
        "execution_id": execution.id,
        # Attune's consumer refuses null here; its own services send 0 when they do not know.
        "action_id": execution.action_id or 0,
        "action_ref": execution.action_ref,
        # As Attune's services name it on this exchange: Failed, Abandoned, Cancelled.
        "status": becomes.value.capitalize(),
        "result": result,
        "completed_at": moment,
    }
    return ExecutionMessage(
        message_id=str(message_id),
        correlation_id=str(correlation),
        exchange=destination.exchange,
        routing_key=destination.routing_key,
        execution_id=execution.id,
        is_workflow_task=execution.is_workflow_task,
        body=envelope(COMPLETED_MESSAGE_TYPE, message_id, correlation, payload, moment),
    )


def repeated_request(
    execution: Execution,
    *,
    parent_id: int | None,
    enforcement_id: int | None,
    config: object,
    number: int,
    destination: Destination,
    now: datetime,
) -> ExecutionMessage:
    """The request for the scheduler, as the creator of the execution published it."""
    message_id = request_id(execution.id, execution.updated, number)
    payload = {
        "execution_id": execution.id,
        "action_id": execution.action_id,
        "action_ref": execution.action_ref,
        "parent_id": parent_id,
        "enforcement_id": enforcement_id,
        "config": config,
    }
    return ExecutionMessage(
        message_id=str(message_id),
        correlation_id=str(message_id),
        exchange=destination.exchange,
        routing_key=destination.routing_key,
        execution_id=execution.id,
        # The scheduler claims an execution once, however often it is asked: no repeat has to be withheld.
        is_workflow_task=False,
        body=envelope(DISPATCH_MESSAGE_TYPE, message_id, message_id, payload, rfc3339(now)),
    )


def envelope(
    message_type: str, message_id: UUID, correlation_id: UUID, payload: Mapping[str, object], moment: str
) -> bytes:
    envelope = {
        "message_id": str(message_id),
        "correlation_id": str(correlation_id),
        "message_type": message_type,
        "version": "1.0",
        "timestamp": moment,
        "headers": {"retry_count": 0, "source_service": SOURCE_SERVICE},
        "payload": payload,
    }
    return _ENCODER.encode(envelope).encode()


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _microseconds(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def rfc3339(moment: datetime) -> str:
    return _microseconds(moment).replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The one status change that dlq-handler makes to an execution, with its result and its completion event.

    `execution` is the row as it was read: nothing is written unless it still is like that.
    """

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
