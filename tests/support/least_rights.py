"""A user of both servers that has the rights which `dlq-handler grants` prints, and no other."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from sandbox.servers import RabbitMQ
from tests.support.psql import apply_script
from tests.support.sidecar import SidecarProcess
from tests.support.stock_world import StockWorld

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
