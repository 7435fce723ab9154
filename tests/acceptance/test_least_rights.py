"""With exactly the rights that `dlq-handler grants` prints, and no other, the whole job is done."""

from urllib.parse import urlsplit, urlunsplit

from dlq_handler.sandbox.servers import RabbitMQ
from tests.acceptance.conftest import World
from tests.support.sidecar import sidecar_process

USER = "least"


def as_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{USER}:{USER}@{parts.hostname}:{parts.port}"))


async def test_the_printed_rights_are_enough(world: World, rabbitmq: RabbitMQ) -> None:
    worker = await world.vanished_worker()
    async with sidecar_process(
        world.folder, as_user(world.amqp_url), as_user(world.database_url), start=False
    ) as sidecar:
        rights = await sidecar.cli_json("grants", "--role", USER)
        vhost = urlsplit(world.amqp_url).path.removeprefix("/")
        await rabbitmq.ask("PUT", f"users/{USER}", {"password": USER, "tags": ""})
        await rabbitmq.ask("PUT", f"permissions/{vhost}/{USER}", rights["rabbitmq"])
        await world.sql(f"CREATE ROLE {USER} LOGIN PASSWORD '{USER}'")
        for statement in rights["postgresql"]:
            await world.sql(statement)
        try:
            await sidecar.start()
            dispatched = await world.executor.schedule_many(5, worker.id)
            await world.all_ended(dispatched)
            _, answer = await sidecar.readyz()
            assert "grants" not in answer["notes"]
            assert await sidecar.terminate() == 0
        finally:
            await world.sql(f"DROP OWNED BY {USER}")
            await world.sql(f"DROP ROLE {USER}")
            await rabbitmq.ask("DELETE", f"users/{USER}")
