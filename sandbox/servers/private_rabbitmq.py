"""A RabbitMQ of our own: own folder, own ports on 127.0.0.1, own epmd; never the system's service.

Ends, with its folder, when this process ends in any way. Vhosts, users and durable messages outlive `kill`
and `start`.
"""

import asyncio
import os
import secrets
import signal
from functools import partial
from pathlib import Path
from typing import Self

import httpx

from sandbox.server_programs.program import Client, output_of
from sandbox.server_programs.rabbitmq import RabbitMQPrograms
from sandbox.servers.owned_process import OwnedProcess
from sandbox.servers.ports import ANYWHERE, Place, free_port, private_folder, remove_folder
from sandbox.servers.rabbitmq import RabbitMQ
from sandbox.servers.sources import first_available, started

USER = "sandbox"
START_SECONDS = 120
NORMAL_MEMORY_LIMIT = "0.6"


class PrivateRabbitMQ(RabbitMQ):
    def __init__(self, programs: RabbitMQPrograms, origin: str, *, place: Place = ANYWHERE) -> None:
        port, management_port, metrics_port = free_port(), free_port(), free_port()
        password = secrets.token_hex(8)
        super().__init__(
            amqp_url=f"amqp://{USER}:{password}@127.0.0.1:{port}/%2F",
            management_url=f"http://127.0.0.1:{management_port}",
            origin=origin,
        )
        self.metrics_address = f"127.0.0.1:{metrics_port}"
        self.folder = private_folder("rabbitmq", parent=place.parent)
        self.log = place.log or self.folder / "rabbitmq-server.log"
        self._programs = programs
        self._epmd_port, self._distribution_port = free_port(), free_port()
        self._epmd: OwnedProcess | None = None
        self.process: OwnedProcess | None = None
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management,rabbitmq_prometheus].\n")
        (self.folder / "advanced.config").write_text("[].\n")
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{port}\n"
            f"management.tcp.ip = 127.0.0.1\n"
            f"management.tcp.port = {management_port}\n"
            f"prometheus.tcp.ip = 127.0.0.1\n"
            f"prometheus.tcp.port = {metrics_port}\n"
            f"default_user = {USER}\n"
            f"default_pass = {password}\n"
            f"disk_free_limit.absolute = 50MB\n"
            f"vm_memory_high_watermark.relative = {NORMAL_MEMORY_LIMIT}\n"
        )

    @classmethod
    async def launch(cls, *, place: Place = ANYWHERE) -> Self:
        """A private one, whatever else there is: for tests that kill it. NoServer when no way is open."""
        ways = {
            "this machine": partial(cls.of_this_machine, place=place),
            "packages": partial(cls.of_packages, place=place),
        }
        return await first_available("RabbitMQ", ways)

    @classmethod
    async def of_this_machine(cls, *, place: Place = ANYWHERE) -> Self:
        programs = RabbitMQPrograms.on_this_machine()
        origin = f"private, from {programs.scripts}"
        return await started(lambda: cls(programs, origin, place=place))

    @classmethod
    async def of_packages(cls, *, place: Place = ANYWHERE) -> Self:
        programs = await RabbitMQPrograms.of_packages()
        origin = f"private, from packages unpacked in {programs.root}"
        return await started(lambda: cls(programs, origin, place=place))

    async def start(self) -> None:
        if self.process and self.process.is_running:
            return
        if not (self._epmd and self._epmd.is_running):
            self._epmd = self._own(
                [str(self._programs.epmd), "-port", str(self._epmd_port), "-address", "127.0.0.1"],
                log=self.folder / "epmd.log",
            )
        self.process = self._own([str(self._programs.server)], log=self.log)
        await self.process.answers(self.await_ready(START_SECONDS))

    async def stop(self) -> None:
        if self.process:
            await self.process.stop(signal.SIGTERM)

    async def kill(self) -> None:
        if self.process:
            await self.process.kill()

    async def close(self) -> None:
        for process in (self.process, self._epmd):
            if process:
                await process.kill()
        remove_folder(self.folder)

    async def set_memory_alarm(self, on: bool) -> None:
        await self.control("set_vm_memory_high_watermark", "0" if on else NORMAL_MEMORY_LIMIT)
        while on != await self._is_alarmed():  # noqa: ASYNC110 (another process: there is no event to await)
            await asyncio.sleep(0.1)

    async def control(self, *arguments: str) -> str:
        """rabbitmqctl. Costs a second of CPU: for what the management API cannot do."""
        return await output_of(str(self._programs.control), *arguments, environment=self._environment())

    def client(self) -> Client:
        """rabbitmqctl."""
        return Client(command=[str(self._programs.control)], environment=self._own_environment())

    async def _is_alarmed(self) -> bool:
        """By the health check, which asks the broker itself; the figures of /nodes are seconds old."""
        try:
            await self.ask("GET", "health/checks/alarms")
        except httpx.HTTPStatusError as unwell:
            if unwell.response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                raise
            return True
        return False

    def _own(self, command: list[str], *, log: Path) -> OwnedProcess:
        return OwnedProcess(command, environment=self._environment(), log=log, folder=self.folder)

    def _environment(self) -> dict[str, str]:
        """The caller's, but for what would lead to another RabbitMQ or Erlang."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RABBITMQ_", "ERL", "NOTIFY_SOCKET"))
        }
        return inherited | self._own_environment()

    def _own_environment(self) -> dict[str, str]:
        files = {
            "CONF_ENV_FILE": "none",
            "CONFIG_FILE": "rabbitmq.conf",
            "ADVANCED_CONFIG_FILE": "advanced.config",
            "ENABLED_PLUGINS_FILE": "enabled_plugins",
            "MNESIA_BASE": "mnesia",
            "LOG_BASE": "log",
            "GENERATED_CONFIG_DIR": "config",
            "SCHEMA_DIR": "schema",
            "PID_FILE": "pid",
        }
        libraries = {"LD_LIBRARY_PATH": self._programs.library_path} if self._programs.library_path else {}
        return {
            **libraries,
            **{f"RABBITMQ_{name}": str(self.folder / file) for name, file in files.items()},
            "PATH": os.pathsep.join([str(self._programs.erlang), os.environ.get("PATH", os.defpath)]),
            "HOME": str(self.folder),  # the Erlang cookie is kept there
            "RABBITMQ_NODENAME": f"sandbox{self.port}@localhost",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # The script then becomes the Erlang machine instead of waiting for it, so that a signal reaches
            # the server itself; -noinput keeps that machine from ending at the end of its empty input.
            # Without the interface the distribution port would listen on every address.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
        }
