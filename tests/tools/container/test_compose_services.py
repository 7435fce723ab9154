"""Our services of docker-compose.yml, started as the file says but without an engine: command, health, order."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandbox.servers import RabbitMQ
from sandbox.servers.ports import free_port
from tests.support.compose_file import ROOT, services
from tests.support.compose_project import ComposeProject
from tests.support.eventually import eventually


@pytest.fixture
async def project(
    rabbitmq: RabbitMQ, vhost: str, empty_database: str, tmp_path: Path
) -> AsyncIterator[ComposeProject]:
    """The file's services of ours, times scaled, on this machine's servers."""
    environment = services({})["dlq-handler"].environment
    hosts = {
        environment["ATTUNE__DATABASE__URL"]: empty_database,
        environment["ATTUNE__MESSAGE_QUEUE__URL"]: vhost,
    }
    ports = {
        "SANDBOX_API_PORT": str(free_port()),
        "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(free_port()),
        "ATTUNE__DLQ_HANDLER__UI__PORT": "0",
        "ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": rabbitmq.management_url,
    }
    scaled = services({"SANDBOX_TIMES": "scaled"})
    async with ComposeProject(tmp_path, scaled, hosts=hosts, ports=ports) as project:
        yield project


async def test_our_services_start_in_order_get_healthy_and_do_their_work(project: ComposeProject) -> None:
    await project.up()

    code, checked = await project.run("dlq-handler", "dlq-handler", "config", "check", "--output", "json")
    assert code == 0, checked
    assert json.loads(checked)["files"] == [str(ROOT / "config.docker.yaml")]

    headers = {"Authorization": "Bearer sandbox"}
    async with httpx.AsyncClient(base_url=project.url_of("api"), headers=headers, trust_env=False) as api:
        body = {"action_ref": "core.echo", "parameters": {"message": "hello"}}
        asked = await api.post("/api/v1/executions/execute", json=body)
        assert asked.status_code == 201, asked.text
        number = asked.json()["data"]["id"]

        async def is_completed() -> bool:
            execution = (await api.get(f"/api/v1/executions/{number}")).json()["data"]
            assert execution["status"] == "completed", execution
            return True

        await eventually(is_completed)

    async with httpx.AsyncClient(base_url=project.url_of("dlq-handler"), trust_env=False) as ops:

        async def is_ready() -> bool:
            answer = await ops.get("/readyz")
            assert answer.status_code == 200, answer.text
            return True

        await eventually(is_ready)
    # Attune's own end at once (SIGTERM_AT_ONCE); its workers and dlq-handler finish what they have begun.
    await project.down(at_once=("api", "executor"))
