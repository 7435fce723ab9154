"""What the sidecar publishes: the notice that an execution has ended, in Attune's envelope."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid5

from dlq_handler.domain.execution import Execution, ExecutionStatus

SOURCE_SERVICE = "dlq-handler"

_ENCODER = json.JSONEncoder(separators=(",", ":"))

# Fixed for ever: consumers recognise a repeated notice by an id made from this.
NOTICE_NAMESPACE = UUID("6f1d3c5e-2a0b-5c47-9e1d-0c8b4f7a9d21")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One `execution.completed` message, complete and ready to be published as often as it takes."""

    message_id: UUID
    correlation_id: UUID
    execution_id: int
    is_workflow_task: bool
    body: bytes


def notice_id(execution_id: int, replaced_updated: datetime) -> UUID:
    """The same for every repeat of one status change, another for every other change."""
    return uuid5(
        NOTICE_NAMESPACE,
        f"{execution_id}/{replaced_updated.astimezone(UTC).isoformat(timespec='microseconds')}",
    )


def ended_notice(
    execution: Execution,
    becomes: ExecutionStatus,
    result: dict[str, object] | None,
    *,
    correlation_id: str | None,
    now: datetime,
) -> Notice:
    """`execution` is the row our change replaced; `now` is the database's clock."""
    message_id = notice_id(execution.id, execution.updated)
    correlation = _uuid(correlation_id) or message_id
    moment = _rfc3339(now)
    envelope = {
        "message_id": str(message_id),
        "correlation_id": str(correlation),
        "message_type": "ExecutionCompleted",
        "version": "1.0",
        "timestamp": moment,
        "headers": {"retry_count": 0, "source_service": SOURCE_SERVICE},
        "payload": {
            "execution_id": execution.id,
            # Attune's consumer refuses null here; its own services send 0 when they do not know.
            "action_id": execution.action_id or 0,
            "action_ref": execution.action_ref,
            # As Attune's services name it on this exchange: Failed, Abandoned, Cancelled.
            "status": becomes.value.capitalize(),
            "result": result,
            "completed_at": moment,
        },
    }
    return Notice(
        message_id=message_id,
        correlation_id=correlation,
        execution_id=execution.id,
        is_workflow_task=execution.is_workflow_task,
        body=_ENCODER.encode(envelope).encode(),
    )


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
