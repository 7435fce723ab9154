"""What stock Attune puts on the broker, written down from its contract and asked of the reference's own processes.

The tables here are the contract's, not the reference's: where the two differ, one of them is wrong. They stand for
stock Attune, whose services cannot be started here.
"""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from sandbox.attune import messages
from sandbox.attune.amqp import open_connection
from sandbox.attune.executor import StockExecutor
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.reference_attune import ReferenceAttune, reference_attune
from tests.tools.attune.declared import consumers, declared_exchanges, declared_queues

DLX = {"x-dead-letter-exchange": "attune.dlx"}
EXCHANGES = {
    "attune.events": "topic",
    "attune.executions": "topic",
    "attune.notifications": "fanout",
    "attune.dlx": "direct",
}
# Each queue with its arguments and its (exchange, key) bindings.
COMMON: dict[str, tuple[dict[str, Any], set[tuple[str, str]]]] = {
    "attune.dlx.queue": ({}, {("attune.dlx", "#")}),
}
EXECUTOR = COMMON | {
    "attune.executor.events.queue": (DLX, {("attune.events", "event.created")}),
    "attune.enforcements.queue": (DLX, {("attune.executions", "enforcement.#")}),
    "attune.execution.requests.queue": (DLX, {("attune.executions", "execution.requested")}),
    "attune.execution.status.queue": (DLX, {("attune.executions", "execution.status.changed")}),
    "attune.execution.completed.queue": (DLX, {("attune.executions", "execution.completed")}),
    "attune.inquiry.responses.queue": (DLX, {("attune.executions", "inquiry.responded")}),
}
SENSOR = COMMON | {"attune.events.queue": (DLX, {("attune.events", "#")})}
WORKER = COMMON | {
    "worker.1.executions": (
        DLX | {"x-message-ttl": 300000},
        {("attune.executions", "execution.dispatch.worker.1")},
    ),
    "worker.1.packs": (DLX, {("attune.events", "pack.registered"), ("attune.events", "pack.deleted")}),
    "worker.1.cancel": (DLX, {("attune.executions", "execution.cancel.worker.1")}),
}

# The consumer tag and the prefetch of each queue. §2: "prefetch 10, worker executions prefetch =
# max_concurrent_tasks+2", "worker-N-packs (prefetch 5)".
CONSUMERS = {
    "attune.dlx.queue": ("executor.dlq", 10),
    "attune.executor.events.queue": ("executor.event", 10),
    "attune.enforcements.queue": ("executor.enforcement", 10),
    "attune.execution.requests.queue": ("executor.scheduler", 10),
    "attune.execution.status.queue": ("executor.manager", 10),
    "attune.execution.completed.queue": ("executor.completion", 10),
    "attune.inquiry.responses.queue": ("executor.inquiry", 10),
    "worker.1.executions": ("worker-1", 12),
    "worker.1.packs": ("worker-1-packs", 5),
    "worker.1.cancel": ("worker-1-cancel", 10),
}

ENVELOPE = ["message_id", "correlation_id", "message_type", "version", "timestamp", "headers", "payload"]
PAYLOADS = {
    "execution.requested": [
        "execution_id",
        "action_id",
        "action_ref",
        "parent_id",
        "enforcement_id",
        "config",
    ],
    "execution.dispatch.worker.1": [
        *("execution_id", "worker_id", "action_ref", "config"),
        "scheduled_attempt_updated_at",
    ],
    "execution.status.changed": [
        *("execution_id", "action_ref", "previous_status", "new_status"),
        "changed_at",
    ],
    "execution.completed": ["execution_id", "action_id", "action_ref", "status", "result", "completed_at"],
}
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.(\d{3}|\d{6}|\d{9}))?Z")


SERVICES = pytest.mark.parametrize(
    ("part", "queues"),
    [("api", COMMON), ("executor", EXECUTOR), ("sensor", SENSOR), ("worker worker-shell", WORKER)],
    ids=["api", "executor", "sensor", "worker"],
)


@SERVICES
async def test_a_service_declares_what_the_contract_says_and_nothing_else(
    part: str, queues: dict[str, Any], idle: ReferenceAttune, rabbitmq: RabbitMQ
) -> None:
    """Argument for argument, with stock times: another value keeps a stock service from starting."""
    await idle.start(part)
    vhost = idle.environment.amqp_url
    assert await declared_exchanges(rabbitmq, vhost) == EXCHANGES
    assert await declared_queues(rabbitmq, vhost) == queues


@SERVICES
async def test_a_service_ensures_its_queues_at_its_start_and_deletes_none(
    part: str, queues: dict[str, Any], idle: ReferenceAttune, rabbitmq: RabbitMQ
) -> None:
    await idle.start(part)
    await idle.stop(part)
    vhost = idle.environment.amqp_url
    assert await declared_queues(rabbitmq, vhost) == queues
    async with await open_connection(vhost) as connection:
        channel = await connection.channel()
        for name in queues:
            await channel.queue_delete(name)
    assert await declared_queues(rabbitmq, vhost) == {}
    await idle.start(part)
    assert await declared_queues(rabbitmq, vhost) == queues


async def test_every_queue_that_is_declared_is_consumed_with_the_contract_s_tag_and_prefetch(
    attune: ReferenceAttune, rabbitmq: RabbitMQ, vhost: str
) -> None:
    assert CONSUMERS.keys() == (await declared_queues(rabbitmq, vhost)).keys()

    async def are_consumed() -> bool:
        found = await consumers(rabbitmq, vhost)
        assert found == CONSUMERS
        return True

    await eventually(are_consumed)


async def test_messages_that_the_reference_does_not_implement_are_acknowledged_and_logged(
    attune: ReferenceAttune, executor: StockExecutor
) -> None:
    of_some_kind = messages.status_changed(
        execution_id=1, action_ref="core.echo", previous_status="scheduled", new_status="running"
    )
    taken = (
        ("executor", "attune.executor.events.queue", "attune.events", "event.created"),
        ("executor", "attune.enforcements.queue", "attune.executions", "enforcement.created"),
        ("executor", "attune.inquiry.responses.queue", "attune.executions", "inquiry.responded"),
        ("worker worker-shell", "worker.1.packs", "attune.events", "pack.registered"),
        ("worker worker-shell", "worker.1.cancel", "attune.executions", "execution.cancel.worker.1"),
    )
    for _, _, exchange, key in taken:
        await executor.publisher.publish(replace(of_some_kind, exchange=exchange, routing_key=key))
    line = "ExecutionStatusChanged is acknowledged; the reference does nothing about it"
    await eventually(lambda: all(f"{queue}: {line}" in attune.log(part) for part, queue, _, _ in taken))


async def test_each_message_has_the_contract_s_fields_in_their_order(
    attune: ReferenceAttune, tap: list[AbstractIncomingMessage]
) -> None:
    execution_id = await attune.execute("core.echo", message="hi")
    await attune.until_status(execution_id, "completed")
    await eventually(lambda: len(tap) == 5)
    bodies = [json.loads(message.body) for message in tap]
    for message, body in zip(tap, bodies, strict=True):
        assert list(body) == ENVELOPE
        assert list(body["payload"]) == PAYLOADS[message.routing_key or ""]
        assert message.body == json.dumps(body, separators=(",", ":")).encode()
        assert body["version"] == "1.0"
        assert RFC3339.fullmatch(body["timestamp"])
        assert list(body["headers"]) == ["retry_count", "source_service"]
        assert body["headers"]["retry_count"] == 0
        assert (message.message_id, message.correlation_id) == (body["message_id"], body["correlation_id"])
        assert body["message_id"] == body["correlation_id"]
        assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
        assert message.content_type == "application/json"
        assert message.timestamp is not None
        assert (message.type, message.app_id, message.expiration, message.headers) == (None, None, None, {})
    assert [(body["message_type"], body["headers"]["source_service"]) for body in bodies] == [
        ("ExecutionRequested", "api-service"),
        ("ExecutionRequested", "executor"),
        ("ExecutionStatusChanged", "worker"),
        ("ExecutionStatusChanged", "worker"),
        ("ExecutionCompleted", "worker"),
    ]
    requested, dispatched, running, done, completed = (body["payload"] for body in bodies)
    assert requested["config"] == dispatched["config"] == {"message": "hi"}
    assert dispatched["worker_id"] == 1
    assert (running["previous_status"], running["new_status"]) == ("scheduled", "running")
    # §2: "a worker's terminal one carries previous_status = new_status".
    assert (done["previous_status"], done["new_status"]) == ("completed", "completed")
    assert completed["status"] == "Completed"
    assert completed["action_id"] == requested["action_id"]


async def test_a_request_that_comes_five_times_is_dispatched_once(
    attune: ReferenceAttune, tap: list[AbstractIncomingMessage], vhost: str, database: str
) -> None:
    """Claim and scheduling are compare-and-set; and a late copy changes no terminal row."""
    async with StockExecutor(vhost, database) as hands:
        execution_id = await hands.create_execution()
        for _ in range(5):
            await hands.request(execution_id)
        ended = await attune.until_status(execution_id, "completed")
        await hands.request(execution_id)
        await hands.publisher.publish(
            messages.status_changed(
                execution_id=execution_id,
                action_ref="core.echo",
                previous_status="running",
                new_status="completed",
            )
        )
        await eventually(lambda: len(tap) == 5 + 1 + 3 + 2)
    keys = [message.routing_key for message in tap]
    assert keys.count("execution.dispatch.worker.1") == 1
    assert keys.count("execution.completed") == 1
    assert await attune.execution(execution_id) == ended


@pytest.fixture
async def idle(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[ReferenceAttune]:
    """With stock times, and nothing started."""
    async with reference_attune(tmp_path, vhost, database, SANDBOX_TIMES="stock") as attune:
        yield attune


@pytest.fixture
async def attune(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[ReferenceAttune]:
    async with reference_attune(tmp_path, vhost, database) as attune:
        await attune.start("api", "executor", "worker worker-shell")
        yield attune


@pytest.fixture
async def tap(attune: ReferenceAttune, vhost: str) -> AsyncIterator[list[AbstractIncomingMessage]]:
    """Whatever passes through attune.executions from now on."""
    seen: list[AbstractIncomingMessage] = []

    async def look(message: AbstractIncomingMessage) -> None:
        seen.append(message)

    async with await open_connection(vhost) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind("attune.executions", "#")
        await queue.consume(look, no_ack=True)
        yield seen
