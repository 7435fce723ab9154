"""With exactly the rights that `dlq-handler grants` prints, and no other, the whole job is done."""

from urllib.parse import urlsplit

import pytest

from dlq_handler.sandbox.servers import RabbitMQ
from tests.acceptance.conftest import World
from tests.support.eventually import eventually
from tests.support.least_rights import USER, as_user, least_rights
from tests.support.sidecar import sidecar_process

OWN_QUEUE = "attune.dlx.sidecar.queue"


async def test_the_printed_rights_are_enough(world: World, rabbitmq: RabbitMQ) -> None:
    worker = await world.vanished_worker()
    async with (
        sidecar_process(
            world.folder, as_user(world.amqp_url), as_user(world.database_url), start=False
        ) as sidecar,
        least_rights(world, rabbitmq, sidecar),
    ):
        await sidecar.start()
        dispatched = await world.executor.schedule_many(5, worker.id)
        await world.all_ended(dispatched)
        # With Attune's own steps, which are in a table of Attune's.
        story = await sidecar.cli_json("executions", "explain", str(dispatched[0].execution_id))
        assert "moved" in [moment["kind"] for moment in story["moments"]]
        _, answer = await sidecar.readyz()
        assert "grants" not in answer["notes"]
        assert await sidecar.terminate() == 0


@pytest.mark.parametrize("at_grant", ["true", "false"])
async def test_the_rights_printed_in_one_mode_are_enough_for_both(
    world: World, rabbitmq: RabbitMQ, at_grant: str
) -> None:
    """docs/how-to/beside-attune.md: the rights are from step 1, shadow mode is step 2, live mode is step 4."""
    worker = await world.vanished_worker()
    urls = as_user(world.amqp_url), as_user(world.database_url)
    async with (
        sidecar_process(
            world.folder, *urls, start=False, intake__queue=OWN_QUEUE, shadow__enabled=at_grant
        ) as granted,
        least_rights(world, rabbitmq, granted),
    ):
        for shadow in ("true", "false"):
            async with sidecar_process(
                world.folder,
                *urls,
                name=f"shadow-{shadow}",
                intake__queue=OWN_QUEUE,
                shadow__enabled=shadow,
            ) as sidecar:
                dispatched = await world.executor.schedule_many(2, worker.id)
                if shadow == "false":
                    await world.all_ended(dispatched)
                assert await sidecar.terminate() == 0


async def test_a_right_that_is_refused_at_the_start_is_a_warning_that_names_grants(
    world: World, rabbitmq: RabbitMQ
) -> None:
    urls = as_user(world.amqp_url), as_user(world.database_url)
    async with (
        sidecar_process(world.folder, *urls, start=False, intake__queue=OWN_QUEUE) as sidecar,
        least_rights(world, rabbitmq, sidecar),
    ):
        vhost = urlsplit(world.amqp_url).path.removeprefix("/")
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        await rabbitmq.ask("PUT", f"permissions/{vhost}/{USER}", nothing)
        await sidecar.start(ready=False)
        await eventually(lambda: sidecar.events("start.refused"), timeout=60)
        line = sidecar.events("start.refused")[0]
        assert line["level"] == "warning"
        assert "ACCESS_REFUSED" in line["error"]
        assert "`dlq-handler grants`" in line["error"]
