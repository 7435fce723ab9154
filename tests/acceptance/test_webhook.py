"""A running sidecar tells a webhook what changes, and a receiver that hangs holds up neither it nor its end."""

from tests.acceptance.conftest import World
from tests.support.eventually import eventually
from tests.support.hook import a_hook
from tests.support.sidecar import sidecar_process

TRIP = "UPDATE dlq_handler.brake SET tripped_at = now(), tripped_by = 'another', why = 'many', released_until = NULL"


async def test_a_sidecar_tells_of_a_problem_and_of_its_end(world: World) -> None:
    with a_hook() as hook:
        async with sidecar_process(
            world.folder,
            world.amqp_url,
            world.database_url,
            notify__webhook_url=hook.url,
            notify__cooldown_seconds="0",
            notify__timeout_seconds="2",
            ui__look_seconds="1",
            ui__environment="rehearsal",
            NO_PROXY="127.0.0.1",
        ) as sidecar:

            def told(health: str) -> bool:
                return any(("brake", health) in changes for changes in hook.kinds)

            await world.sql(TRIP)
            await eventually(lambda: told("problem"), timeout=60)
            code, _, complaint = await sidecar.cli("brake", "release", "--reason", "it is real")
            assert code == 0, complaint
            await eventually(lambda: told("ok"), timeout=60)
            assert {message["environment"] for message in hook.heard} == {"rehearsal"}
            brakes = [health for changes in hook.kinds for kind, health in changes if kind == "brake"]
            assert brakes == ["problem", "ok"], "once each"

            hook.silent.set()
            await world.sql(TRIP)
            await eventually(lambda: sidecar.events("notification.failed"), timeout=60)
            assert await sidecar.terminate() == 0
        assert sidecar.events("notification.sent")
        assert "S3CRET" not in sidecar.log_text(), "the address is a secret as a whole"
