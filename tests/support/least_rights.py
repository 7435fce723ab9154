"""A user of both servers that has the rights which `dlq-handler grants` prints, and no other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from dlq_handler.sandbox.servers import RabbitMQ
from tests.acceptance.conftest import World
from tests.support.sidecar import SidecarProcess

USER = "least"


def as_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{USER}:{USER}@{parts.hostname}:{parts.port}"))


@asynccontextmanager
async def least_rights(
    world: World, rabbitmq: RabbitMQ, sidecar: SidecarProcess, *options: str
) -> AsyncIterator[None]:
    """What the sidecar's settings and these options of `grants` ask for, for as long as the block lasts."""
    rights = await sidecar.cli_json("grants", "--role", USER, *options)
    vhost = urlsplit(world.amqp_url).path.removeprefix("/")
    await rabbitmq.ask("PUT", f"users/{USER}", {"password": USER, "tags": ""})
    await rabbitmq.ask("PUT", f"permissions/{vhost}/{USER}", rights["rabbitmq"])
    await world.sql(f"CREATE ROLE {USER} LOGIN PASSWORD '{USER}'")
    for statement in rights["postgresql"]:
        await world.sql(statement)
    try:
        yield
    finally:
        await sidecar.kill()
        await world.sql(f"DROP OWNED BY {USER}")
        await world.sql(f"DROP ROLE {USER}")
        await rabbitmq.ask("DELETE", f"users/{USER}")
