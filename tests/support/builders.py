"""Builders that take only what a test is about; everything else is a plausible stock letter."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from dlq_handler.broker.delivery import RawMessage
from dlq_handler.dead_letters.decide import Circumstances
from dlq_handler.dead_letters.letter import DeadLetter, Death
from dlq_handler.dead_letters.parse import read_dead_letter
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.messages import Destination
from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames
from dlq_handler.topology.canary import CANARY_MESSAGE_TYPE, CANARY_QUEUE

NOON = datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=UTC)
COMPLETIONS = Destination("attune.executions", "execution.completed")
MESSAGE_ID = "5b2f0f0e-3f56-4a5c-8a1e-1c9a4b6f7d01"


def a_death(**changes: Any) -> Death:
    fields: dict[str, Any] = {
        "queue": "worker.7.executions",
        "reason": "expired",
        "time": NOON + timedelta(minutes=5),
        "count": 1,
    }
    return Death(**(fields | changes))


def a_dead_letter(**changes: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "key": "k1",
        "message_id": MESSAGE_ID,
        "correlation_id": MESSAGE_ID,
        "message_type": "ExecutionRequested",
        "execution_id": 1,
        "worker_id": 7,
        "attempt_updated_at": NOON,
        "death": a_death(),
        "first_death_queue": "worker.7.executions",
        "exchange": "attune.dlx",
        "routing_key": "execution.dispatch.worker.7",
        "redelivered": False,
        "body": b"{}",
        "body_size": 2,
        "action_ref": "core.echo",
    }
    return DeadLetter(**(fields | changes))


def a_canary(**changes: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "message_type": CANARY_MESSAGE_TYPE,
        "execution_id": None,
        "attempt_updated_at": None,
        "death": a_death(queue=CANARY_QUEUE),
        "first_death_queue": CANARY_QUEUE,
        "action_ref": None,
    }
    return a_dead_letter(**(fields | changes))


def an_execution(**changes: Any) -> Execution:
    fields: dict[str, Any] = {
        "id": 1,
        "status": ExecutionStatus.SCHEDULED,
        "updated": NOON,
        "worker_id": 7,
        "action_id": 3,
        "action_ref": "core.echo",
    }
    return Execution(**(fields | changes))


def a_worker(*, id: int = 7, heartbeat_age_seconds: float | None = 2.0) -> Worker:  # noqa: A002 - the field's own name
    return Worker(id=id, heartbeat_age_seconds=heartbeat_age_seconds)


def circumstances(
    *, link_age_seconds: float = 3600.0, unavailable_after_seconds: float = 90.0
) -> Circumstances:
    return Circumstances(
        link_age_seconds=link_age_seconds,
        availability=AvailabilityPolicy(unavailable_after_seconds=unavailable_after_seconds),
        names=WorkerQueueNames(),
    )


def a_body(**changes: Any) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "execution_id": 1,
        "worker_id": 7,
        "action_ref": "core.echo",
        "config": None,
        "scheduled_attempt_updated_at": "2026-11-16T12:00:00.123456Z",
    }
    return {
        "message_id": MESSAGE_ID,
        "correlation_id": MESSAGE_ID,
        "message_type": "ExecutionRequested",
        "version": "1.0",
        "timestamp": "2026-11-16T12:00:00Z",
        "headers": {"retry_count": 0},
        "payload": payload | changes,
    }


def an_x_death(**changes: Any) -> dict[str, Any]:
    return {
        "queue": "worker.7.executions",
        "reason": "expired",
        "time": NOON.replace(microsecond=0) + timedelta(minutes=5),
        "count": 1,
        "exchange": "attune.executions",
        "routing-keys": ["execution.dispatch.worker.7"],
    } | changes


def a_raw_letter(body: object = None, **changes: Any) -> RawMessage:
    """`body`: bytes as they are, anything else as JSON, None for a stock dispatch."""
    content = a_body() if body is None else body
    headers: Mapping[str, object] = {"x-death": [an_x_death()], "x-first-death-queue": "worker.7.executions"}
    fields: dict[str, Any] = {
        "exchange": "attune.dlx",
        "routing_key": "execution.dispatch.worker.7",
        "redelivered": False,
        "message_id": MESSAGE_ID,
        "correlation_id": MESSAGE_ID,
        "headers": headers,
        "body": content if isinstance(content, bytes) else json.dumps(content).encode(),
    }
    return RawMessage(**(fields | changes))


def read(raw: RawMessage) -> DeadLetter:
    return read_dead_letter(raw, body_limit_bytes=65536)
