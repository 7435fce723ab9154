"""What must never happen: a terminal execution changed, a live one failed, a dead letter dropped."""

from sandbox.attune.worker import StockWorker
from tests.support.eventually import eventually
from tests.support.stock_world import StockWorld

TERMINAL = ["completed", "failed", "cancelled", "timeout", "abandoned"]


async def test_only_the_current_attempts_of_unavailable_workers_are_failed(world: StockWorld) -> None:
    """The rows change while the messages wait in the queues, which they do for 3 s."""
    dead, other, alive = [await world.lost_worker(name, ttl_ms=3000) for name in ("dead", "other", "alive")]
    # An old heartbeat is evidence only for a connection older than the limit: it is, when the messages expire.
    async with world.sidecar(ATTUNE__WORKER__HEARTBEAT_INTERVAL="1", worker__unavailable_after_seconds="1.5"):
        *ended, dispatched_again = await world.executor.schedule_many(len(TERMINAL) + 1, dead.id)
        [lost] = await world.executor.schedule_many(1, dead.id)
        [living] = await world.executor.schedule_many(1, alive.id)
        for dispatch, status in zip(ended, TERMINAL, strict=True):
            await world.sql(
                "UPDATE execution SET status = $1::text::execution_status, result = '{}' WHERE id = $2",
                status,
                dispatch.execution_id,
            )
        before = await world.auditor.terminal_rows()
        assert len(before) == len(TERMINAL)
        await world.sql(
            "UPDATE execution SET worker = $1 WHERE id = $2", other.id, dispatched_again.execution_id
        )
        for dispatch in (lost, living):
            await world.sql(
                "UPDATE execution SET status = 'running', started_at = now() WHERE id = $1",
                dispatch.execution_id,
            )
        for worker, age in ((alive, "-1 hour"), (dead, "1 hour")):
            await world.sql(
                f"UPDATE worker SET last_heartbeat = now() - interval '{age}' WHERE id = $1", worker.id
            )
        await world.until_outcomes(
            already_terminal=len(TERMINAL), stale_attempt=1, left_to_monitor=1, failed=1
        )
        await world.all_ended([lost])
    assert await world.auditor.changed_terminal_rows(before) == []
    assert await world.auditor.completion_counts() == {lost.execution_id: 1}
    assert await world.auditor.status(dispatched_again.execution_id) == "scheduled"
    assert await world.auditor.status(living.execution_id) == "running"


async def test_a_rejected_dispatch_is_failed_with_its_own_error(world: StockWorld) -> None:
    async with (
        StockWorker(world.amqp_url, world.database_url, name="picky", ttl_ms=600_000) as worker,
        world.sidecar(),
        world.channel() as channel,
    ):
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        queue = await channel.get_queue(f"worker.{worker.id}.executions", ensure=False)
        message = await eventually(lambda: queue.get(fail=False))
        assert message
        await message.reject(requeue=False)
        await world.all_ended([dispatch])
    result = await world.auditor.result(dispatch.execution_id)
    assert (result["error"], result["reason"]) == ("Dispatch was rejected", "rejected")
    assert "expired_at" not in result
