"""What operators set: an intake queue of its own, dead-lettering off; and a host that locks its tables."""

from sandbox.attune import topology
from sandbox.attune.dead_letter_handler import StockDeadLetterHandler
from tests.support.eventually import eventually
from tests.support.stock_world import StockWorld


async def test_an_own_intake_queue_keeps_a_stock_executor_from_the_dead_letters(world: StockWorld) -> None:
    worker = await world.lost_worker()
    async with (
        StockDeadLetterHandler(world.amqp_url, world.database_url) as stock,
        world.sidecar(intake__queue="attune.dlx.sidecar.queue"),
    ):
        dispatched = await world.executor.schedule_many(50, worker.id)
        await world.all_ended(dispatched)
        assert stock.seen == []


async def test_switched_off_it_takes_no_dead_letter_and_logs_it(world: StockWorld) -> None:
    worker = await world.lost_worker(ttl_ms=200)
    async with world.sidecar(ATTUNE__MESSAGE_QUEUE__RABBITMQ__DEAD_LETTER__ENABLED="false") as sidecar:
        await world.executor.schedule_many(3, worker.id)

        async def expired() -> bool:
            return await topology.ready_count(world.amqp_url, topology.worker_queue(worker.id)) == 0

        await eventually(expired)
        assert sidecar.events("intake.disabled")
        assert await world.outcomes() == {}
        assert await sidecar.terminate() == 0


async def test_a_brake_tripped_by_another_replica_and_locked_tables_are_waited_for(world: StockWorld) -> None:
    async with world.sidecar() as sidecar:
        async with world.locked("execution", "worker"):
            await eventually(lambda: sidecar.events("loop.interrupted"))
        await sidecar.wait_ready()
        await world.sql(
            "UPDATE dlq_handler.brake SET tripped_at = now(), tripped_by = 'another', explanation = 'many'"
        )

        async def is_held() -> bool:
            return (await sidecar.readyz())[0] == 503

        await eventually(is_held)
    assert sidecar.events("loop.crashed") == []
