"""The reference Attune as processes of its own, on whatever servers a test has."""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from aio_pika.abc import AbstractIncomingMessage

from sandbox.attune.actions import install_actions
from sandbox.attune.amqp import open_connection
from sandbox.attune.database import Database
from sandbox.attune.defects import read_cured
from sandbox.attune.environment import Environment
from sandbox.attune.health import Unhealthy, api_health, executor_health, sensor_health, worker_health
from sandbox.attune.schema import cure
from sandbox.clean_environment import clean_environment
from sandbox.servers.owned_process import OwnedProcess
from sandbox.servers.ports import free_port
from tests.support.eventually import eventually

PROGRAM = (sys.executable, "-m", "sandbox.attune")


class ReferenceAttune:
    """Parts by the words of their command: "api", "executor", "sensor", "worker worker-shell"."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.variables = variables
        self.environment = Environment.read(variables)
        self.api_url = f"http://127.0.0.1:{self.environment.api_port}"
        self._folder = folder
        self._parts: dict[str, OwnedProcess] = {}

    async def start(self, *parts: str) -> None:
        """And wait until each is well."""
        for part in parts:
            self.launch(part)
        for part in parts:
            await self.until_healthy(part)

    def launch(self, part: str) -> None:
        self._parts[part] = OwnedProcess(
            [*PROGRAM, *part.split()],
            environment=clean_environment(self.variables),
            log=self._folder / f"{part.replace(' ', '-')}.log",
            folder=self._folder / "nothing",
        )

    async def until_healthy(self, part: str) -> None:
        async def is_healthy() -> bool:
            if not self._parts[part].is_running:
                raise RuntimeError(f"{part} ended early:\n{self.log(part)}")
            try:
                await self.health(part)
            except Unhealthy as unwell:
                raise AssertionError(f"{unwell}\n{self.log(part)}") from unwell
            return True

        await eventually(is_healthy, timeout=60, every=0.1)

    async def health(self, part: str) -> str:
        match part.split():
            case ["api"]:
                return await asyncio.to_thread(api_health, self.environment)
            case ["executor"]:
                return await executor_health(self.environment)
            case ["sensor"]:
                return await sensor_health(self.environment)
            case words:
                return await worker_health(self.environment, words[-1])

    def pid(self, part: str) -> int:
        return self._parts[part].pid

    def is_running(self, part: str) -> bool:
        return self._parts[part].is_running

    def send(self, part: str, number: signal.Signals) -> None:
        self._parts[part].send(number)

    async def stop(self, part: str) -> None:
        self._parts[part].send(signal.SIGTERM)
        await self._parts[part].ended(30)

    async def kill(self, part: str) -> None:
        await self._parts[part].kill()

    async def kill_all(self) -> None:
        for part in self._parts:
            await self.kill(part)

    def log(self, part: str) -> str:
        return self._parts[part].log.read_text()

    def logs(self) -> str:
        return "\n".join(f"--- {part}\n{self.log(part)}" for part in self._parts)

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.api_url,
            headers={"Authorization": f"Bearer {self.environment.api_token}"},
            trust_env=False,
            verify=False,
            timeout=30,
        )

    async def execute(self, action_ref: str, **parameters: Any) -> int:
        async with self.http() as client:
            answer = await client.post(
                "/api/v1/executions/execute", json={"action_ref": action_ref, "parameters": parameters}
            )
        assert answer.status_code == 201, answer.text
        return int(answer.json()["data"]["id"])

    async def cancel(self, execution_id: int) -> dict[str, Any]:
        async with self.http() as client:
            answer = await client.post(f"/api/v1/executions/{execution_id}/cancel")
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    async def execution(self, execution_id: int) -> dict[str, Any]:
        async with self.http() as client:
            answer = await client.get(f"/api/v1/executions/{execution_id}")
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    async def until_status(self, execution_id: int, *statuses: str, timeout: float = 60) -> dict[str, Any]:
        async def arrived() -> dict[str, Any]:
            execution = await self.execution(execution_id)
            assert execution["status"] in statuses
            return execution

        return await eventually(arrived, timeout=timeout, every=0.1)


@asynccontextmanager
async def reference_attune(
    folder: Path, amqp_url: str, database_url: str, **variables: str
) -> AsyncIterator[ReferenceAttune]:
    """With its actions installed and no part started; every part ends with the block."""
    database = await Database.open(database_url)
    try:
        async with database.transaction() as session:
            await install_actions(session)
    finally:
        await database.close()
    await cure(database_url, read_cured(variables.get("SANDBOX_CURED", "")))
    attune = ReferenceAttune(
        folder,
        {
            "ATTUNE__MESSAGE_QUEUE__URL": amqp_url,
            "ATTUNE__DATABASE__URL": database_url,
            "SANDBOX_API_PORT": str(free_port()),
            **variables,
        },
    )
    try:
        yield attune
    except BaseException:
        print(attune.logs())  # pytest shows it with the failure
        raise
    finally:
        await attune.kill_all()


@asynccontextmanager
async def completion_counts(amqp_url: str) -> AsyncIterator[Counter[int]]:
    """Number of completion events by execution, from now on, read from a queue of its own."""
    ends: Counter[int] = Counter()

    async def count(message: AbstractIncomingMessage) -> None:
        ends[json.loads(message.body)["payload"]["execution_id"]] += 1

    async with await open_connection(amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind("attune.executions", "execution.completed")
        await queue.consume(count, no_ack=True)
        yield ends
