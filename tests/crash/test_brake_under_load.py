"""Promise 7: a mass failure trips the brake once for all replicas, and no dead letter is lost or decided meanwhile."""

from functools import partial
from typing import Any

from tests.crash.world import CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

LETTERS = 3000
LIMIT = 300
BATCH = 50

BRAKED: dict[str, Any] = {
    "brake__max_decisions_per_minute": str(LIMIT),
    "batch__size": str(BATCH),
}


async def on_record(world: CrashWorld) -> int:
    [(count,)] = await world.sql("SELECT count(*) FROM dlq_handler.letter")
    return int(count)


async def rollbacks(world: CrashWorld) -> int:
    """Each look of an intake that must stay closed is one."""
    [(count,)] = await world.sql(
        "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    )
    return int(count)


async def shows_that_it_holds(sidecar: SidecarProcess) -> bool:
    status, answer = await sidecar.readyz()
    assert status == 503
    assert "`dlq-handler brake release`" in answer["checks"]["consumer"]["detail"]
    assert "brake" in await sidecar.problems()
    assert (await sidecar.metrics())["dlq_handler_brake_state"] == 1
    return True


async def test_mass_failure_trips_the_brake_once_and_is_finished_after_its_release(world: CrashWorld) -> None:
    dispatches = await world.schedule(LETTERS)

    async def all_waiting() -> bool:
        assert await world.consumers() == 0
        assert await world.letters_ready() + await on_record(world) == LETTERS
        return True

    async with world.sidecar("one", **BRAKED) as one, world.sidecar("two", **BRAKED) as two:
        await world.dead_letter(dispatches)
        await eventually(all_waiting, timeout=60)
        for replica in (one, two):
            await eventually(partial(shows_that_it_holds, replica))
        decided = await on_record(world)
        # Two batches at once in each of two processes, and none sees what the others have not committed.
        assert LIMIT <= decided < LIMIT + 4 * BATCH
        assert await world.failed() == decided
        assert (await one.cli("brake", "status"))[0] == 1

        opened = [len(replica.events("intake.opened")) for replica in (one, two)]
        looked = await rollbacks(world)

        async def has_looked_often() -> bool:
            return await rollbacks(world) >= looked + 2

        await eventually(has_looked_often, timeout=60)
        assert [len(replica.events("intake.opened")) for replica in (one, two)] == opened, (
            "it does not try by taking"
        )
        await all_waiting()
        assert await on_record(world) == decided

        assert (await two.cli("brake", "release", "--for", "10m", "--comment", "they are gone"))[0] == 0
        await world.settled_once(dispatches, timeout=120)
        for replica in (one, two):
            await replica.wait_ready()
            assert len(replica.events("brake.tripped")) == 1
            assert len(replica.events("brake.released")) == 1
            assert (await replica.metrics())["dlq_handler_brake_trips_total"] == 1


async def test_after_a_short_hold_it_goes_on_at_the_limits_rate_with_the_alert_up(world: CrashWorld) -> None:
    dispatches = await world.schedule(3 * LIMIT)
    async with world.sidecar(**BRAKED | {"brake__hold_seconds": "1"}) as sidecar:
        await world.dead_letter(dispatches)

        async def is_limited() -> bool:
            return (await sidecar.metrics())["dlq_handler_brake_state"] == 2

        await eventually(is_limited)
        await sidecar.wait_ready()
        first = await on_record(world)
        assert first < LIMIT + 2 * BATCH
        # The minute is over, without sitting through it.
        await world.sql("UPDATE dlq_handler.change_count SET at = at - interval '61 seconds'")

        async def went_on() -> bool:
            return await on_record(world) >= first + LIMIT

        await eventually(went_on)
        assert await on_record(world) < first + LIMIT + 2 * BATCH
        assert await is_limited()
        assert (await sidecar.metrics())["dlq_handler_brake_trips_total"] == 1
        assert f"at most {LIMIT} are ended in a minute" in (await sidecar.problems()).get("brake", "")
        await world.sql("UPDATE dlq_handler.change_count SET at = at - interval '61 seconds'")
        await world.settled_once(dispatches)
