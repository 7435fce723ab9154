"""Servers in containers, by testcontainers. They may end together with this process, but are never stopped in
between.

testcontainers is imported only here and only when asked for: where it is not installed, this way is closed.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from typing import Any

from sandbox.server_programs.errors import SourceFailed, SourceUnavailable
from sandbox.servers.errors import NoServer
from sandbox.servers.postgresql import PostgreSQL
from sandbox.servers.rabbitmq import RabbitMQ

RABBITMQ_IMAGE = "rabbitmq:3.13-management"
POSTGRESQL_IMAGE = "postgres:16"
PING_SECONDS = 2
USER = "sandbox"


class ContainedRabbitMQ(RabbitMQ):
    def __init__(self, *, container: Any, amqp_url: str, management_url: str) -> None:
        super().__init__(
            amqp_url=amqp_url, management_url=management_url, origin=f"Docker container of {RABBITMQ_IMAGE}"
        )
        self._container = container

    async def close(self) -> None:
        await asyncio.to_thread(self._container.stop)

    @classmethod
    async def run(cls) -> "ContainedRabbitMQ":
        password = secrets.token_hex(8)
        environment = {"RABBITMQ_DEFAULT_USER": USER, "RABBITMQ_DEFAULT_PASS": password}
        container = await run_container(RABBITMQ_IMAGE, ports=(5672, 15672), environment=environment)
        host, port, management_port = await asyncio.to_thread(addresses, container, 5672, 15672)
        server = cls(
            container=container,
            amqp_url=f"amqp://{USER}:{password}@{host}:{port}/%2F",
            management_url=f"http://{host}:{management_port}",
        )
        await ready_or_closed(server)
        return server


class ContainedPostgreSQL(PostgreSQL):
    def __init__(self, *, container: Any, url: str) -> None:
        super().__init__(url=url, origin=f"Docker container of {POSTGRESQL_IMAGE}")
        self._container = container

    async def close(self) -> None:
        await asyncio.to_thread(self._container.stop)

    @classmethod
    async def run(cls) -> "ContainedPostgreSQL":
        password = secrets.token_hex(8)
        environment = {"POSTGRES_PASSWORD": password}
        container = await run_container(POSTGRESQL_IMAGE, ports=(5432,), environment=environment)
        host, port = await asyncio.to_thread(addresses, container, 5432)
        server = cls(container=container, url=f"postgresql://postgres:{password}@{host}:{port}/postgres")
        await ready_or_closed(server)
        return server


async def run_container(image: str, *, ports: tuple[int, ...], environment: Mapping[str, str]) -> Any:
    try:
        import docker  # noqa: PLC0415 (optional: see the module's docstring)
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 (optional, too)
    except ImportError:
        raise SourceUnavailable("testcontainers is not installed") from None

    def ping() -> None:
        with contextlib.closing(docker.from_env(timeout=PING_SECONDS)) as client:
            client.ping()

    def run() -> Any:
        container = DockerContainer(image).with_exposed_ports(*ports)
        for name, value in environment.items():
            container = container.with_env(name, value)
        return container.start()

    try:
        await asyncio.to_thread(ping)
    except Exception as silent:  # whatever the client raises, it means that this way is closed
        raise SourceUnavailable(f"no Docker engine answers: {silent}") from silent
    try:
        return await asyncio.to_thread(run)
    except Exception as refused:  # no way to a registry, an image that does not start, a full disk
        raise SourceFailed(f"Docker answers, but cannot run {image}: {reason_of(refused)}") from refused


def reason_of(refused: Exception) -> str:
    """The engine's own words, without the address that was asked."""
    return str(getattr(refused, "explanation", None) or refused)


def addresses(container: Any, *ports: int) -> tuple[Any, ...]:
    return (container.get_container_host_ip(), *(container.get_exposed_port(port) for port in ports))


async def ready_or_closed(server: ContainedRabbitMQ | ContainedPostgreSQL) -> None:
    try:
        await server.await_ready()
    except BaseException as silent:
        await server.close()
        if isinstance(silent, NoServer):
            raise SourceFailed(f"{server.origin} runs, but: {silent}") from silent
        raise
