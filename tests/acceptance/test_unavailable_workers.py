"""Draining the queue of an unavailable worker, as an operator turns it on."""

from contextlib import AsyncExitStack

from sandbox.attune.topology import verify_redeclare, worker_queue
from sandbox.attune.worker import StockWorker
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.host_tables import COUNTS, assert_counted
from tests.support.least_rights import as_user, least_rights
from tests.support.sidecar import sidecar_process
from tests.support.stock_world import StockWorld

LONG_TTL_MS = 300_000

# A worker is unavailable after two seconds, and confirmed unavailable one second later.
OPTIONS = {
    "worker__drain_queues": "true",
    "worker__unavailable_after_seconds": "2",
    "monitor__confirm_after_seconds": "1",
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
}


async def test_two_replicas_with_the_printed_rights_drain_the_queue_once_and_the_restarted_worker_runs_the_next(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    worker = await world.lost_worker(ttl_ms=LONG_TTL_MS)
    urls = as_user(world.amqp_url), as_user(world.database_url)
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                sidecar_process(world.folder, *urls, name=name, start=False, **OPTIONS)
            )
            for name in ("one", "two")
        ]
        await stack.enter_async_context(least_rights(world, rabbitmq, one))
        await one.start()
        await two.start()
        lost = await world.executor.schedule_many(200, worker.id)
        await world.all_ended(lost)

        assert (await world.auditor.result(lost[0].execution_id))["error"] == "Worker unavailable"
        letters = await one.cli_json("letters", "list", "--reason", "rescued", "--limit", "500")
        assert {letter["queue"] for letter in letters} == {worker_queue(worker.id)}
        assert {letter["execution_id"] for letter in letters} == {one.execution_id for one in lost}

        async def is_drained() -> bool:
            # Without a consumer also: the drain ends a moment after its last message.
            [row] = await one.cli_json("workers", "list")
            assert (row["availability"], row["status"]) == ("unavailable", "active")
            return bool((row["ready"], row["consumers"]) == (0, 0))

        await eventually(is_drained)
        for sidecar in (one, two):
            assert "database rights" not in await sidecar.problems()

        async with StockWorker(
            world.amqp_url,
            world.database_url,
            name=worker.name,
            ttl_ms=LONG_TTL_MS,
            heartbeat_seconds=0.5,
        ) as again:
            assert again.id == worker.id
            await again.consume()
            run = await world.executor.schedule_many(20, again.id)
            await world.all_ended(run, "completed")
        for sidecar in (one, two):
            assert await sidecar.terminate() == 0
        assert await world.outcomes() == {"failed": 200}
        [counts] = await world.sql(COUNTS)
        assert_counted(tuple(counts.values()), letters=200)
    await verify_redeclare(world.amqp_url, {worker.id: LONG_TTL_MS})
