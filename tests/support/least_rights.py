"""A user of both servers that has the rights which `dlq-handler grants` prints, and no other."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from sandbox.clean_environment import clean_environment
from sandbox.server_programs.errors import SourceUnavailable
from sandbox.server_programs.postgresql import PostgreSQLPrograms
from sandbox.servers import RabbitMQ
from tests.support.sidecar import SidecarProcess
from tests.support.stock_world import StockWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    code: int
    error: str


async def apply_script(url: str, script: str) -> Applied:
    programs = await _programs()
    process = await asyncio.create_subprocess_exec(
        str(programs.client),
        "--no-psqlrc",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        "--file=-",
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment({"LD_LIBRARY_PATH": programs.library_path} if programs.library_path else {}),
    )
    async with asyncio.timeout(60):
        _, error = await process.communicate(script.encode())
    return Applied(code=process.returncode or 0, error=error.decode())


async def _programs() -> PostgreSQLPrograms:
    try:
        return PostgreSQLPrograms.on_this_machine()
    except SourceUnavailable:
        return await PostgreSQLPrograms.of_packages()


USER = "least"


def as_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{USER}:{USER}@{parts.hostname}:{parts.port}"))


@asynccontextmanager
async def least_rights(world: StockWorld, rabbitmq: RabbitMQ, sidecar: SidecarProcess) -> AsyncIterator[None]:
    """Rights for the sidecar's settings, for as long as the block lasts.

    The role exists before: `grants` connects as it, and needs no right of it for that.
    """
    vhost = urlsplit(world.amqp_url).path.removeprefix("/")
    await rabbitmq.ask("PUT", f"users/{USER}", {"password": USER, "tags": ""})
    await world.sql(f"CREATE ROLE {USER} LOGIN PASSWORD '{USER}'")
    try:
        code, script, error = await sidecar.cli("grants", "--role", USER)
        assert code == 0, error
        applied = await apply_script(world.database_url, script)
        assert applied.code == 0, f"{applied.error}\n{script}"
        rights = await sidecar.cli_json("grants", "--role", USER)
        await rabbitmq.ask("PUT", f"permissions/{vhost}/{USER}", rights["rabbitmq"])
        [tag] = re.findall(r"^-- rabbitmqctl set_user_tags USER (\S+)$", script, re.MULTILINE)
        await rabbitmq.ask("PUT", f"users/{USER}", {"password": USER, "tags": tag})
        yield
    finally:
        await sidecar.kill()
        await world.sql(f"DROP OWNED BY {USER}")
        await world.sql(f"DROP ROLE {USER}")
        await rabbitmq.ask("DELETE", f"users/{USER}")
