"""Attune's messages: one envelope, a payload per message type, the AMQP properties its publisher sets."""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiormq import spec

_EXECUTIONS = "attune.executions"
_NANOSECONDS = 1_000_000_000
_digits_dropped = 1


class NotAnEnvelope(ValueError):
    """A body that Attune's reader refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StockMessage:
    exchange: str
    routing_key: str
    message_id: str
    correlation_id: str
    body: bytes

    def properties(self) -> spec.Basic.Properties:
        """Nothing else is set: no type, app_id, expiration or headers."""
        return spec.Basic.Properties(
            delivery_mode=2,
            message_id=self.message_id,
            correlation_id=self.correlation_id,
            timestamp=datetime.now(UTC).replace(microsecond=0),
            content_type="application/json",
        )


Publish = Callable[[StockMessage], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    message_id: str | None
    correlation_id: str | None
    message_type: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCompletion:
    """One execution.completed message as it arrived."""

    message_id: str | None
    correlation_id: str | None
    execution_id: int
    payload: dict[str, Any]


def dispatch(
    *,
    execution_id: int,
    worker_id: int,
    action_ref: str,
    scheduled_at: datetime | None,
    config: dict[str, Any] | None = None,
) -> StockMessage:
    """Executor to one worker. `scheduled_at`: the row's `updated` after scheduling; None leaves it out."""
    payload: dict[str, Any] = {
        "execution_id": execution_id,
        "worker_id": worker_id,
        "action_ref": action_ref,
        "config": config,
    }
    if scheduled_at is not None:
        payload["scheduled_attempt_updated_at"] = rfc3339(scheduled_at)
    # Attune uses the type of a request here too; receivers distinguish the two by worker_id.
    return _message(
        "ExecutionRequested", f"execution.dispatch.worker.{worker_id}", payload, source="executor"
    )


def execution_requested(
    *,
    execution_id: int,
    action_ref: str,
    action_id: int | None = None,
    parent_id: int | None = None,
    enforcement_id: int | None = None,
    config: dict[str, Any] | None = None,
    source: str = "executor",
) -> StockMessage:
    payload = {
        "execution_id": execution_id,
        "action_id": action_id,
        "action_ref": action_ref,
        "parent_id": parent_id,
        "enforcement_id": enforcement_id,
        "config": config,
    }
    return _message("ExecutionRequested", "execution.requested", payload, source=source)


def execution_completed(
    *,
    execution_id: int,
    action_ref: str,
    status: str,
    result: object = None,
    action_id: int | None = None,
    source: str = "worker",
    is_capitalised: bool = True,
) -> StockMessage:
    """`status` as in the database; workers and monitors send it capitalised, the scheduler does not."""
    payload = {
        "execution_id": execution_id,
        "action_id": action_id or 0,
        "action_ref": action_ref,
        "status": status.capitalize() if is_capitalised else status,
        "result": result,
        "completed_at": rfc3339_now(),
    }
    return _message("ExecutionCompleted", "execution.completed", payload, source=source)


def cancel_requested(*, execution_id: int, worker_id: int) -> StockMessage:
    payload = {"execution_id": execution_id, "worker_id": worker_id}
    return _message(
        "ExecutionCancelRequested", f"execution.cancel.worker.{worker_id}", payload, source="api-service"
    )


def status_changed(
    *, execution_id: int, action_ref: str, previous_status: str, new_status: str
) -> StockMessage:
    payload = {
        "execution_id": execution_id,
        "action_ref": action_ref,
        "previous_status": previous_status,
        "new_status": new_status,
        "changed_at": rfc3339_now(),
    }
    return _message("ExecutionStatusChanged", "execution.status.changed", payload, source="worker")


def read_envelope(body: bytes) -> Envelope:
    """Raises ValueError for anything Attune's reader would refuse."""
    document = json.loads(body)  # its errors, bad UTF-8 included, are ValueErrors too
    if not isinstance(document, dict):
        raise NotAnEnvelope(f"a message body is a JSON object, this is {type(document).__name__}")
    for name, kind in (("message_type", str), ("timestamp", str), ("payload", dict)):
        if not isinstance(document.get(name), kind):
            raise NotAnEnvelope(f"envelope field {name!r} is missing or no {kind.__name__}")
    return Envelope(
        message_id=document.get("message_id"),
        correlation_id=document.get("correlation_id"),
        message_type=document["message_type"],
        payload=document["payload"],
    )


def read_completion(body: bytes) -> SeenCompletion:
    envelope = read_envelope(body)
    return seen_completion(envelope)


def seen_completion(envelope: Envelope) -> SeenCompletion:
    return SeenCompletion(
        message_id=envelope.message_id,
        correlation_id=envelope.correlation_id,
        execution_id=envelope.payload["execution_id"],
        payload=envelope.payload,
    )


def rfc3339(moment: datetime) -> str:
    """As Attune's serialiser writes it: 'Z', and only as many groups of three digits as are needed."""
    return _rfc3339(moment.astimezone(UTC), moment.microsecond * 1000)


def write_microseconds() -> None:
    """The cure of NANOSECONDS, for the whole process: as in Attune it is the serializer that decides."""
    global _digits_dropped  # noqa: PLW0603 (set once, before the first message)
    _digits_dropped = 1000


def rfc3339_now() -> str:
    """The wall clock with nanoseconds, as Attune stamps envelopes: readers must not expect microseconds."""
    seconds, nanoseconds = divmod(time.time_ns(), _NANOSECONDS)
    nanoseconds -= nanoseconds % _digits_dropped
    return _rfc3339(datetime.fromtimestamp(seconds, UTC), nanoseconds)


def read_stamp(stamp: object) -> datetime | None:
    """The time of an attempt; None for what Attune's reader cannot read."""
    try:
        return datetime.fromisoformat(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None


def _rfc3339(moment: datetime, nanoseconds: int) -> str:
    digits = f"{nanoseconds:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    fraction = f".{digits}" if digits else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _message(message_type: str, routing_key: str, payload: dict[str, Any], *, source: str) -> StockMessage:
    message_id = str(uuid4())
    envelope = {
        "message_id": message_id,
        "correlation_id": message_id,
        "message_type": message_type,
        "version": "1.0",
        "timestamp": rfc3339_now(),
        "headers": {"retry_count": 0, "source_service": source},
        "payload": payload,
    }
    return StockMessage(
        exchange=_EXECUTIONS,
        routing_key=routing_key,
        message_id=message_id,
        correlation_id=message_id,
        # Compact and in UTF-8, as Attune's serialiser writes it.
        body=json.dumps(envelope, separators=(",", ":"), ensure_ascii=False).encode(),
    )
