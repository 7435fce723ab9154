"""Promise 9: two replicas over one queue are safe, also when one of them dies with work in its hands."""

import asyncio
import signal

from tests.crash.world import SABOTAGE, World

LETTERS = 600


async def test_a_replica_killed_under_load_is_inherited_by_the_other(world: World) -> None:
    dispatches = await world.schedule(LETTERS)
    async with (
        world.sidecar("heir", batch__size="20") as heir,
        world.sidecar("killed", start=False, batch__size="20") as victim,
    ):
        # Its notices of the batches before are in the outbox, leased to it; the last batch is not acknowledged either.
        await victim.start(program=(SABOTAGE, "after_commit", "3"))
        async with asyncio.TaskGroup() as load:
            load.create_task(world.bury(dispatches))
            assert await victim.wait() == -signal.SIGKILL
        await world.settled_once(dispatches)
        assert heir.events("outbox_entry.reclaimed")
    decided_by = dict(await world.sql("SELECT replica, count(*) FROM dlq_handler.letter GROUP BY replica"))
    assert decided_by["killed"] >= 3
    assert decided_by["heir"] == LETTERS - decided_by["killed"]
