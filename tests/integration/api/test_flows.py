"""Flows over HTTP: read by every user, started and stopped by an operator, on what was seen, and on record."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from dlq_handler.database.engine import Database
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import FlowStatus
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.lifecycle.queue_list import OwnerKind, QueueRow, QueueStatus
from dlq_handler.lifecycle.queue_reader import ReadQueues
from dlq_handler.operations.audit_sql import list_operations
from tests.support.ui import OPERATE, READ, TOKENS, a_ui_world, asking

BASE = "http://localhost:8085/api/v1/"
START = {"id": "w7", "blueprint": "worker", "params": {"id": "7"}, "comment": "a new worker"}
FIELDS = ["id", "blueprint", "params", "status", "step", "queues", "version", "since", "last_error"]


async def activate(store: Database, flow_id: str = "w7") -> None:
    async with store.transaction() as tx:
        await tx.run(
            "UPDATE own.flow SET status = 'active', version = version + 1 WHERE id = :id", id=flow_id
        )


async def test_a_start_is_a_wish_that_the_leader_acts_on(api: httpx.AsyncClient, ui_store: Database) -> None:
    answer = await api.post("flows", json=START)

    assert answer.status_code == 202
    flow = answer.json()["flow"]
    assert list(flow) == FIELDS
    assert (flow["status"], flow["step"], flow["params"]) == ("starting", None, {"id": "7"})
    assert flow["queues"] == ["worker.7.executions", "worker.7.packs", "worker.7.cancel"]
    assert (await api.get("flows/w7")).json() == flow
    assert (await api.get("flows")).json() == {"flows": [flow]}
    assert (await api.get("flows", params={"status": "active"})).json() == {"flows": []}
    [operation] = await list_operations(ui_store)
    assert (operation.id, operation.action) == (answer.json()["operation_id"], "flow.start")
    assert (operation.username, operation.target, operation.comment) == ("ada", "flow w7", "a new worker")

    again = await api.post("flows", json=START)
    assert (again.status_code, "is starting" in again.text) == (409, True)
    assert len(await list_operations(ui_store)) == 1


async def test_a_stop_is_done_once_upon_what_was_seen(api: httpx.AsyncClient, ui_store: Database) -> None:
    seen = (await api.post("flows", json=START)).json()["flow"]["version"]
    await activate(ui_store)
    ask: dict[str, Any] = {"comment": "scaled in", "version": str(seen)}
    changed = await api.post("flows/w7/stop", json=ask)
    assert changed.status_code == 409
    ask["version"] = changed.json()["error"]["version"]

    done = await api.post("flows/w7/stop", json=ask)

    assert (done.status_code, done.json()["flow"]["status"]) == (202, "stopping")
    async with ui_store.transaction() as tx:
        flow = await flows_sql.read_flow(tx, "w7")
    assert flow is not None
    assert (flow.status, flow.wanted_by, flow.comment) == (FlowStatus.STOPPING, "ada", "scaled in")
    assert (await api.post("flows/w7/stop", json=ask)).status_code == 409
    assert [one.action for one in await list_operations(ui_store)] == ["flow.stop", "flow.start"]


async def test_what_is_not_there_or_makes_no_sense_is_refused(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    stop = {"comment": "x", "version": "1"}
    for method, path, ask, status in (
        ("GET", "flows/w9", None, 404),
        ("POST", "flows/w9/stop", stop, 404),
        ("POST", "flows/w9/stop", {"version": "1"}, 422),
        ("POST", "flows/w9/stop", {"comment": "x"}, 422),
        ("POST", "flows", START | {"comment": " "}, 422),
        ("POST", "flows", START | {"id": "a b"}, 422),
        ("POST", "flows", START | {"blueprint": "wroker"}, 409),
        ("POST", "flows", START | {"params": {}}, 409),
        ("POST", "flows", START | {"params": {"id": "seven"}}, 409),
        ("GET", "flows?status=gone", None, 422),
    ):
        answer = await api.request(method, path, json=ask)
        assert answer.status_code == status, (path, ask, answer.text)
    assert await list_operations(ui_store) == []


async def test_a_reader_may_look_and_not_act(ui_store: Database) -> None:
    async with asking(await a_ui_world(ui_store, tokens=TOKENS), token=READ) as reader:
        reader.base_url = httpx.URL(BASE)
        assert (await reader.get("flows")).status_code == 200
        assert (await reader.get("queues")).status_code == 200
        assert (await reader.post("flows", json=START)).status_code == 403
        assert (await reader.post("flows/w7/stop", json={"comment": "x", "version": "1"})).status_code == 403
    assert await list_operations(ui_store) == []


async def test_while_the_feature_is_off_the_setting_is_named(ui_store: Database) -> None:
    world = await a_ui_world(ui_store, tokens=TOKENS, lifecycle=LifecycleOptions())
    async with asking(world, token=OPERATE) as client:
        client.base_url = httpx.URL(BASE)
        for path, ask in (("flows", START), ("flows/w7/stop", {"comment": "x", "version": "1"})):
            answer = await client.post(path, json=ask)
            assert answer.status_code == 409
            assert "dlq_handler.lifecycle.enabled is false" in answer.json()["error"]["detail"]
        assert (await client.get("flows")).json() == {"flows": []}


@pytest.mark.parametrize("limits", [(), ("AMQP cannot list queues",)])
async def test_queues_are_listed_with_their_owners(ui_store: Database, limits: tuple[str, ...]) -> None:
    row = QueueRow(
        name="worker.7.executions",
        owner_kind=OwnerKind.FLOW,
        owner="w7",
        exists=True,
        arguments={"x-message-ttl": 300_000},
        ready=3,
        consumers=0,
        status=QueueStatus.OK,
        explanation=None,
    )

    async def read_queues() -> ReadQueues:
        return ReadQueues(rows=(row,), limits=limits, at=datetime(2030, 1, 1, tzinfo=UTC))

    async with asking(await a_ui_world(ui_store, read_queues=read_queues)) as client:
        found = (await client.get(f"{BASE}queues")).json()
    assert found["limits"] == list(limits)
    [one] = found["queues"]
    assert (one["name"], one["owner_kind"], one["owner"]) == ("worker.7.executions", "flow", "w7")
    assert (one["exists"], one["ready"], one["status"]) == (True, 3, "ok")
    assert one["arguments"] == {"x-message-ttl": 300_000}
