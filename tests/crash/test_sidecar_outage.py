"""After an outage of the sidecar longer than every timeout, the dead letters in its queue are processed first."""

from typing import Any

from tests.crash.world import CrashWorld
from tests.support.eventually import eventually

# Every limit of the monitor is over before the sidecar starts; only heartbeats are not believed before 30 s.
AWAY_FOR_LONG: dict[str, Any] = {
    "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": "1000",
    "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "1",
    "monitor__interval_seconds": "1",
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "grace__after_ttl_seconds": "1",
    "monitor__held_timeout_seconds": "2",
    "monitor__confirm_after_seconds": "1",
}


async def test_executions_are_failed_by_their_dead_letters_and_not_by_the_monitor(world: CrashWorld) -> None:
    dispatches = await world.let_expire(10)

    async def all_wait() -> bool:
        return await world.letters_ready() == 10

    await eventually(all_wait)
    await eventually(lambda: world.is_older_than(dispatches[-1], 3))

    async with world.sidecar(**AWAY_FOR_LONG, worker__unavailable_after_seconds="30"):
        await world.settled_once(dispatches)

    errors = await world.sql("SELECT result ->> 'error', count(*) FROM execution GROUP BY 1")
    assert errors == [("Worker queue TTL expired", 10)]
    assert await world.sql("SELECT explanation FROM dlq_handler.stale_decision") == []


async def test_monitor_waits_while_dead_letters_are_being_read(world: CrashWorld) -> None:
    """Its scans begin when the intake is drained: here locked rows keep dead letters from being acknowledged."""
    dispatches = await world.let_expire(10)
    # Without a dead letter: only a scan finds it.
    lost = await world.schedule_on(world.worker_id)
    await world.age([lost], 120)
    settings: dict[str, Any] = {**AWAY_FOR_LONG, "grace__after_ttl_seconds": "60"}

    async with (
        world.rows_locked(dispatches) as release,
        world.sidecar(**settings, worker__unavailable_after_seconds="2") as sidecar,
    ):
        await eventually(lambda: sidecar.events("scan.delayed"))
        # Heartbeats are believed from here on, and the lease was renewed: a scan would fail it.
        await eventually(lambda: sidecar.events("gate.opened"))
        await eventually(lambda: world.is_older_than(lost, 120 + 8))
        assert await world.status(lost) == "scheduled"
        assert sidecar.events("scan.finished") == []
        release.set()
        await world.settled_once(dispatches)
        await world.is_failed(lost)

    kept = await world.sql(
        "SELECT execution_id, evidence::text LIKE '%intake_undrained%' FROM dlq_handler.stale_decision"
    )
    assert kept == [(lost.execution_id, False)]
