"""Promise 9: two replicas over one queue are safe, also when one of them is killed at work."""

import asyncio
import signal

from tests.crash.world import SABOTAGE, CrashWorld

LETTERS = 600


async def test_a_replica_killed_under_load_is_inherited_by_the_other(world: CrashWorld) -> None:
    dispatches = await world.schedule(LETTERS)
    async with (
        world.sidecar("successor", batch__size="20") as successor,
        world.sidecar("killed", start=False, batch__size="20") as victim,
    ):
        # Completion events of its earlier batches are in the outbox, leased to it; the last batch is not acknowledged.
        await victim.start(program=(SABOTAGE, "after_commit", "3"))
        async with asyncio.TaskGroup() as load:
            load.create_task(world.dead_letter(dispatches))
            assert await victim.wait() == -signal.SIGKILL
        await world.settled_once(dispatches)
        assert successor.events("outbox_entry.reclaimed")
    decided_by = dict(await world.sql("SELECT replica, count(*) FROM dlq_handler.letter GROUP BY replica"))
    assert decided_by["killed"] >= 3
    assert decided_by["successor"] == LETTERS - decided_by["killed"]
