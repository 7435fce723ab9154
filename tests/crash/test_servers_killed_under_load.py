"""Promise 5: without broker or database the sidecar stays up, is not ready, does not spin, and continues afterwards."""

import asyncio

import pytest

from sandbox.servers import PrivatePostgreSQL, PrivateRabbitMQ
from tests.crash.world import CrashWorld, complaints, is_unready
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

LETTERS = 400
# One per loop and outage is what we write; a loop that does not wait writes thousands.
MOST_COMPLAINTS = 40


@pytest.mark.parametrize("victims", ["broker", "database", "both"])
async def test_servers_killed_and_restarted_under_load_cost_nothing(
    world: CrashWorld, rabbitmq: PrivateRabbitMQ, postgres: PrivatePostgreSQL, victims: str
) -> None:
    servers: list[PrivateRabbitMQ | PrivatePostgreSQL] = []
    if victims in {"broker", "both"}:
        servers.append(rabbitmq)
    if victims in {"database", "both"}:
        servers.append(postgres)
    dispatches = await world.schedule(LETTERS)
    async with world.sidecar(batch__size="20") as sidecar, asyncio.TaskGroup() as load:
        pid = sidecar.pid
        load.create_task(world.dead_letter(dispatches))
        await eventually(lambda: some_decided(sidecar))
        try:
            for server in servers:
                await server.kill()
            await eventually(lambda: is_unready(sidecar))
            assert sidecar.is_running
        finally:
            for server in servers:
                await server.start()
        await sidecar.wait_ready()
        # An event that a killed broker took and did not confirm is published again, with the same id.
        await world.settled_once(dispatches, may_repeat_completions=rabbitmq in servers)
        assert sidecar.is_running
        assert sidecar.pid == pid
    assert len(complaints(sidecar)) < MOST_COMPLAINTS
    assert not sidecar.events("loop.crashed")


async def some_decided(sidecar: SidecarProcess) -> bool:
    one_by_one = len(sidecar.events("dead_letter.decided"))
    in_batches: int = sum(batch["count"] for batch in sidecar.events("batch.decided"))
    return one_by_one + in_batches >= 40
