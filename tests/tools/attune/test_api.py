"""The reference API over HTTP, in the shapes of Attune's own."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from sandbox.attune.actions import ACTIONS, install_actions
from sandbox.attune.api.process import Api, web_app
from sandbox.attune.defects import Defect
from sandbox.attune.environment import Environment
from sandbox.attune.executor import StockExecutor
from sandbox.attune.log_line import silent
from sandbox.attune.topology import REQUESTS_QUEUE, ready_count
from sandbox.attune.worker import StockWorker

EXECUTION = {
    *("id", "action", "action_ref", "config", "parent", "enforcement", "executor", "worker", "status"),
    *("result", "created", "updated"),
}
WORKER = {
    *("id", "name", "worker_type", "worker_role", "host", "port", "status", "last_heartbeat"),
    *("heartbeat_age_seconds", "heartbeat_stale", "cordoned", "cordon_reason", "cordoned_by", "cordoned_at"),
    *("health_state", "supported_runtimes", "load", "created", "updated"),
}


@pytest.fixture
async def link(vhost: str, database: str) -> AsyncIterator[Api]:
    async with Api(vhost, database) as link:
        async with link.database.transaction() as session:
            await install_actions(session)
        yield link


@pytest.fixture
async def client(link: Api) -> AsyncIterator[httpx.AsyncClient]:
    app = web_app(link, Environment.read({"SANDBOX_API_TOKEN": "secret"}), silent)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://api", headers={"Authorization": "Bearer secret"}
    ) as client:
        yield client


@pytest.mark.parametrize("path", ["/api/v1/executions/execute", "/api/v1/executions"])
async def test_an_execution_is_created_and_requested(
    path: str, client: httpx.AsyncClient, executor: StockExecutor, vhost: str
) -> None:
    wanted = {
        "action_ref": "core.echo",
        "parameters": {"message": "hi"},
        "env_vars": {"A": "b"},
        "worker_selector": {"zone": "north"},
    }
    answer = await client.post(path, json=wanted)
    assert answer.status_code == 201
    data = answer.json()["data"]
    assert data.keys() == EXECUTION | {"worker_selector"}
    assert (data["status"], data["config"], data["worker"]) == ("requested", {"message": "hi"}, None)
    assert await ready_count(vhost, REQUESTS_QUEUE) == 1
    row = await executor.database.session.fetchrow(
        "SELECT env_vars, action FROM execution WHERE id = $1", data["id"]
    )
    assert row is not None
    assert (row["env_vars"], row["action"]) == ({"A": "b"}, data["action"])


async def test_an_execution_is_read_as_it_is(client: httpx.AsyncClient, executor: StockExecutor) -> None:
    execution_id = await executor.create_execution(
        "core.echo", config={"n": 1}, workflow_task={"task_name": "t"}
    )
    answer = await client.get(f"/api/v1/executions/{execution_id}")
    assert answer.status_code == 200
    assert answer.json()["data"].keys() == EXECUTION | {"workflow_task"}
    assert answer.json()["data"]["workflow_task"] == {"task_name": "t"}


async def test_executions_are_listed_by_status_a_page_at_a_time(
    client: httpx.AsyncClient, executor: StockExecutor
) -> None:
    ids = [await executor.create_execution("core.echo") for _ in range(5)]
    await executor.database.session.execute("UPDATE execution SET status = 'failed' WHERE id = $1", ids[0])
    answer = await client.get("/api/v1/executions", params={"status": "requested", "page": 2, "page_size": 3})
    assert [item["id"] for item in answer.json()["items"]] == [ids[1]]
    assert answer.json()["pagination"] == {
        "page": 2,
        "page_size": 3,
        "total_items": 4,
        "total_pages": 2,
        "has_previous": True,
        "has_next": False,
    }
    assert (await client.get("/api/v1/executions?status=running")).json()["items"] == []


async def test_workers_are_shown_with_health_and_load(
    client: httpx.AsyncClient, executor: StockExecutor, worker: StockWorker
) -> None:
    await executor.schedule(await executor.create_execution("core.echo"), worker.id)
    [shown] = (await client.get("/api/v1/workers")).json()["items"]
    assert shown.keys() == WORKER
    assert (shown["health_state"], shown["heartbeat_stale"]) == ("active", False)
    assert shown["supported_runtimes"] == ["shell"]
    assert (shown["load"]["scheduled"], shown["load"]["total_active"]) == (1, 1)
    await worker.heartbeat(age_seconds=6)
    alone = (await client.get(f"/api/v1/workers/{worker.id}")).json()
    assert (alone["id"], alone["health_state"], alone["heartbeat_stale"]) == (worker.id, "offline", True)
    assert (await client.get("/api/v1/workers?status=inactive")).json()["pagination"]["total_items"] == 0


@pytest.mark.usefixtures("admission_works")
async def test_the_line_of_an_action_is_shown_once_there_is_one(
    client: httpx.AsyncClient, executor: StockExecutor
) -> None:
    path = "/api/v1/actions/core.slow/queue-stats"
    assert (await client.get(path)).status_code == 404
    for _ in range(3):
        await executor.admit(await executor.create_execution("core.slow"))
    data = (await client.get(path)).json()["data"]
    assert (data["action_ref"], data["active_count"], data["queue_length"]) == ("core.slow", 2, 1)
    assert data.keys() == {
        *("action_id", "action_ref", "queue_length", "active_count", "max_concurrent"),
        *("oldest_enqueued_at", "total_enqueued", "total_completed", "last_updated"),
    }


WRONG: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/api/v1/executions/execute", {"action_ref": "core.nothing"}, 404, "NOT_FOUND"),
    ("POST", "/api/v1/executions/execute", {}, 422, "VALIDATION_ERROR"),
    ("POST", "/api/v1/executions", {"action_ref": "core.echo", "parameters": 1}, 422, "VALIDATION_ERROR"),
    ("POST", "/api/v1/executions/execute", "{", 400, "BAD_REQUEST"),
    ("GET", "/api/v1/executions/999", None, 404, "NOT_FOUND"),
    ("GET", "/api/v1/executions/first", None, 422, "VALIDATION_ERROR"),
    ("GET", f"/api/v1/executions/{2**63}", None, 422, "VALIDATION_ERROR"),
    ("GET", "/api/v1/executions?status=lost", None, 422, "VALIDATION_ERROR"),
    ("GET", "/api/v1/workers?page_size=101", None, 422, "VALIDATION_ERROR"),
    ("GET", "/api/v1/workers/999", None, 404, "NOT_FOUND"),
    ("GET", "/api/v1/nothing", None, 404, "NOT_FOUND"),
    ("DELETE", "/api/v1/workers", None, 405, "METHOD_NOT_ALLOWED"),
]


async def test_every_error_has_the_same_shape(client: httpx.AsyncClient) -> None:
    for method, path, body, status, code in WRONG:
        sent = {"content": body} if isinstance(body, str) else {"json": body}
        answer = await client.request(method, path, headers={"Content-Type": "application/json"}, **sent)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (method, path)
        assert answer.json().keys() - {"details"} == {"error", "code"}
        if status == 422:
            assert answer.json()["details"][0].keys() == {"field", "message"}


async def test_every_route_but_health_needs_the_token(client: httpx.AsyncClient) -> None:
    client.headers.pop("Authorization")
    for given in ("", "Bearer wrong", "Basic secret", "Bearer secret2", "secret", "Bearer "):
        for path in ("/api/v1/executions", "/api/v1/workers", "/api/v1/actions/core.slow/queue-stats"):
            answer = await client.get(path, headers={"Authorization": given} if given else {})
            assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED"), (given, path)
    assert (await client.get("/health")).json()["status"] == "ok"


async def test_publish_500_a_request_that_cannot_be_published_leaves_its_row(
    client: httpx.AsyncClient, link: Api, executor: StockExecutor
) -> None:
    """attune-contract.md §5: "When the publish fails it answers 500 and the row stays `requested`"."""
    await link._hang_up()
    answers = {}
    for name, is_cured in (("as stock", frozenset[Defect]()), ("cured", frozenset({Defect.PUBLISH_500}))):
        link.cured = is_cured
        answer = await client.post("/api/v1/executions/execute", json={"action_ref": "core.echo"})
        rows = await executor.database.session.fetch("DELETE FROM execution RETURNING status::text")
        answers[name] = (answer.status_code, answer.json()["code"], [row["status"] for row in rows])
    assert answers == {
        "as stock": (500, "INTERNAL_SERVER_ERROR", ["requested"]),
        "cured": (503, "SERVICE_UNAVAILABLE", []),
    }
    health = await client.get("/health")
    assert (health.status_code, health.json()["broker"]) == (503, False)


async def test_with_the_database_away_it_is_unavailable(client: httpx.AsyncClient, link: Api) -> None:
    await link.database.close()
    answer = await client.get("/api/v1/executions")
    assert (answer.status_code, answer.json()["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert (await client.get("/health")).json() == {"status": "degraded", "broker": True, "database": False}


async def test_installing_the_actions_twice_changes_nothing(link: Api) -> None:
    async with link.database.transaction() as session:
        await install_actions(session)
        refs = {row["ref"] for row in await session.fetch("SELECT ref FROM action")}
        limits = await session.fetch("SELECT action_ref, threshold FROM policy")
    assert refs == set(ACTIONS)
    assert [(row["action_ref"], row["threshold"]) for row in limits] == [("core.slow", 2)]
