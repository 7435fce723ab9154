"""Our services of docker-compose.yml, started as the file says but without an engine: command, health, order."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import pytest

from sandbox.servers import RabbitMQ
from sandbox.servers.ports import free_port
from tests.support.compose_file import COMPLETED, HEALTHY, ROOT, Service, services
from tests.support.eventually import eventually


class ComposeProject:
    """`hosts`: what the file calls a server, and its address here. `ports`: variables that give a port of its own."""

    def __init__(
        self,
        folder: Path,
        services: Mapping[str, Service],
        *,
        hosts: Mapping[str, str],
        ports: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._services = {name: service for name, service in services.items() if service.is_ours}
        self._hosts, self._ports = hosts, ports
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._reached: dict[str, str] = {}
        programs = folder / "bin"
        programs.mkdir()
        for name, line in {"python": "", "dlq-handler": "-m dlq_handler "}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {line}"$@"\n')
            (programs / name).chmod(0o755)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            await _kill(process)

    async def up(self) -> None:
        """All of ours, each as soon as what it depends on is as the file wants it."""
        reached = {name: asyncio.Event() for name in self._services}

        async def start(service: Service) -> None:
            for needed, condition in service.depends_on.items():
                if needed in reached:
                    await reached[needed].wait()
                    assert self._reached[needed] == condition, f"{service.name} wants {needed} {condition}"
            await self._start(service)
            reached[service.name].set()

        async with asyncio.TaskGroup() as starting:
            for service in self._services.values():
                starting.create_task(start(service))

    async def down(self, *, at_once: Collection[str] = ()) -> None:
        """SIGTERM to all, and no more time than the file gives each: all must end with 0, `at_once` by the signal."""

        async def stop(name: str, process: asyncio.subprocess.Process) -> None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(self._services[name].stop_grace_seconds):
                code = await process.wait()
            wanted = 128 + signal.SIGTERM if name in at_once else 0
            assert code == wanted, f"{name} ended with {code}, not {wanted}:\n{self.log_of(name)[-4000:]}"

        async with asyncio.TaskGroup() as stopping:
            for name, process in self._running.items():
                if process.returncode is None:
                    stopping.create_task(stop(name, process))

    async def run(self, name: str, *command: str, timeout: float = 60) -> tuple[int, str]:
        """As `docker compose exec`: exit code, and all that was printed."""
        process = await self._spawn(self._services[name], command, output=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(timeout):
                printed, _ = await process.communicate()
        finally:
            await _kill(process)
        assert process.returncode is not None
        return process.returncode, printed.decode()

    def url_of(self, name: str) -> str:
        port = {"api": "SANDBOX_API_PORT", "dlq-handler": "ATTUNE__DLQ_HANDLER__HTTP__PORT"}[name]
        return f"http://127.0.0.1:{self._ports[port]}"

    def log_of(self, name: str) -> str:
        return self._log_path(name).read_text(errors="replace")

    def environment_of(self, service: Service) -> dict[str, str]:
        """Nothing of ours comes in: a container has what its image and the file say, and no more."""
        here = {**self._hosts, **{place: str(file) for place, file in service.mounts.items()}}
        values = service.environment
        for there, address in here.items():
            values = {name: value.replace(there, address) for name, value in values.items()}
        path = os.pathsep.join([str(self._folder / "bin"), os.defpath])
        return {"PATH": path, "HOME": str(self._folder), "PYTHONPATH": str(ROOT), **values, **self._ports}

    async def _start(self, service: Service) -> None:
        with self._log_path(service.name).open("wb") as log:
            process = await self._spawn(service, service.command, output=log.fileno())
        self._running[service.name] = process
        if "healthcheck" in service.words:
            await self._until_healthy(service, process)
            self._reached[service.name] = HEALTHY
        else:
            async with asyncio.timeout(60):
                code = await process.wait()
            assert code == 0, f"{service.name} ended with {code}:\n{self.log_of(service.name)}"
            self._reached[service.name] = COMPLETED

    async def _until_healthy(self, service: Service, process: asyncio.subprocess.Process) -> None:
        async def is_healthy() -> bool:
            if process.returncode is not None:
                raise RuntimeError(f"{service.name} ended:\n{self.log_of(service.name)[-4000:]}")
            try:
                code, said = await self.run(
                    service.name, *service.health.command, timeout=service.health.timeout_seconds
                )
            except TimeoutError:
                code, said = 1, "the check itself took too long"
            assert code == 0, f"{service.name} is not healthy: {said}\n{self.log_of(service.name)[-4000:]}"
            return True

        await eventually(is_healthy, timeout=service.health.patience_seconds, every=0.5)

    async def _spawn(
        self, service: Service, command: tuple[str, ...], *, output: int
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._folder,
            env=self.environment_of(service),
        )

    def _log_path(self, name: str) -> Path:
        return self._folder / f"{name}.log"


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


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
