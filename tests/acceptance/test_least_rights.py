"""With exactly the rights that `dlq-handler grants` prints, and no other, the whole job is done."""

from dlq_handler.sandbox.servers import RabbitMQ
from tests.acceptance.conftest import World
from tests.support.least_rights import as_user, least_rights
from tests.support.sidecar import sidecar_process


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
