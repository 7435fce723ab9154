"""The shapes of Attune's messages."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sandbox.attune import messages


def test_a_dispatch_is_an_execution_requested_with_worker_and_stamp() -> None:
    stamp = datetime(2026, 2, 9, 12, 0, 0, 123456, tzinfo=UTC)
    message = messages.dispatch(
        execution_id=7, worker_id=3, action_ref="core.echo", scheduled_at=stamp, config={"a": 1}
    )
    envelope = json.loads(message.body)
    assert (message.exchange, message.routing_key) == ("attune.executions", "execution.dispatch.worker.3")
    assert envelope["payload"] == {
        "execution_id": 7,
        "worker_id": 3,
        "action_ref": "core.echo",
        "config": {"a": 1},
        "scheduled_attempt_updated_at": "2026-02-09T12:00:00.123456Z",
    }
    assert envelope["message_type"] == "ExecutionRequested"
    assert envelope["version"] == "1.0"
    assert envelope["headers"] == {"retry_count": 0, "source_service": "executor"}
    assert envelope["message_id"] == envelope["correlation_id"] == message.message_id


def test_a_dispatch_without_a_stamp_has_no_such_key() -> None:
    message = messages.dispatch(execution_id=7, worker_id=3, action_ref="core.echo", scheduled_at=None)
    assert "scheduled_attempt_updated_at" not in json.loads(message.body)["payload"]


def test_only_attune_s_properties_are_set() -> None:
    properties = messages.execution_requested(execution_id=7, action_ref="core.echo").properties()
    chosen = {name for name, value in properties if value}  # cluster_id is always ""
    assert chosen == {"delivery_mode", "message_id", "correlation_id", "timestamp", "content_type"}
    assert properties.delivery_mode == 2


@pytest.mark.parametrize(
    ("microsecond", "fraction"), [(0, ""), (500_000, ".500"), (120, ".000120"), (123_456, ".123456")]
)
def test_stamps_have_as_many_digits_as_attune_writes(microsecond: int, fraction: str) -> None:
    here = timezone(timedelta(hours=2))
    moment = datetime(2026, 2, 9, 14, 0, 1, microsecond, tzinfo=here)
    assert messages.rfc3339(moment) == f"2026-02-09T12:00:01{fraction}Z"


def test_a_completion_carries_the_capitalised_status_and_never_a_null_action() -> None:
    message = messages.execution_completed(execution_id=7, action_ref="core.echo", status="failed")
    payload = json.loads(message.body)["payload"]
    assert (payload["status"], payload["action_id"], payload["result"]) == ("Failed", 0, None)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"not json",
        b"[]",
        b"{}",
        b'{"message_type":"X","timestamp":"t"}',
        b'{"message_type":1,"payload":{}}',
    ],
)
def test_what_is_no_envelope_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        messages.read_envelope(body)
