"""The options for workers that are gone, as an operator turns them on."""

from sandbox.attune.topology import verify_redeclare, worker_queue
from sandbox.attune.worker import StockWorker
from sandbox.servers import RabbitMQ
from tests.support.journey import World
from tests.support.least_rights import as_user, least_rights
from tests.support.ledger_of_counts import COUNTS, assert_counted
from tests.support.sidecar import sidecar_process

LONG_TTL_MS = 300_000

# A worker is unavailable after two seconds, and gone for certain one second later.
OPTIONS = {
    "worker__drain_queues": "true",
    "worker__unavailable_after_seconds": "2",
    "monitor__confirm_after_seconds": "1",
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
}


async def test_messages_of_a_gone_worker_end_long_before_their_ttl_with_the_printed_rights(
    world: World, rabbitmq: RabbitMQ
) -> None:
    worker = await world.vanished_worker(ttl_ms=LONG_TTL_MS)
    async with (
        sidecar_process(
            world.folder,
            as_user(world.amqp_url),
            as_user(world.database_url),
            start=False,
            **OPTIONS,
        ) as sidecar,
        least_rights(world, rabbitmq, sidecar),
    ):
        await sidecar.start()
        dispatched = await world.executor.schedule_many(20, worker.id)
        await world.all_ended(dispatched)

        assert (await world.auditor.result(dispatched[0].execution_id))["error"] == "Worker is gone"
        letters = await sidecar.cli_json("letters", "list", "--reason", "rescued", "--limit", "100")
        assert {letter["queue"] for letter in letters} == {worker_queue(worker.id)}
        assert {letter["execution_id"] for letter in letters} == {one.execution_id for one in dispatched}

        _, answer = await sidecar.readyz()
        assert "grants" not in answer["notes"]
        [row] = await sidecar.cli_json("workers", "list")
        assert (row["availability"], row["status"], row["ready"], row["consumers"]) == (
            "unavailable",
            "active",
            0,
            0,
        )
        assert await sidecar.terminate() == 0
        [counts] = await world.sql(COUNTS)
        assert_counted(tuple(counts.values()), letters=20)
        told = [
            row["kind"] for row in await world.sql("SELECT kind FROM dlq_handler.history_event ORDER BY id")
        ]
        assert (told[0], told[-1]) == ("sidecar.started", "sidecar.stopped")
        assert "letters.decided" in told
    await verify_redeclare(world.amqp_url, {worker.id: LONG_TTL_MS})


async def test_two_replicas_rescue_each_message_once_and_a_restarted_worker_runs_the_next(
    world: World,
) -> None:
    worker = await world.vanished_worker(ttl_ms=LONG_TTL_MS)
    urls = (world.amqp_url, world.database_url)
    async with (
        sidecar_process(world.folder, *urls, name="one", **OPTIONS),  # type: ignore[arg-type]  # keywords of any name are settings, all text
        sidecar_process(world.folder, *urls, name="two", **OPTIONS),  # type: ignore[arg-type]  # keywords of any name are settings, all text
    ):
        lost = await world.executor.schedule_many(200, worker.id)
        await world.all_ended(lost)

        async with StockWorker(*urls, name=worker.name, ttl_ms=LONG_TTL_MS, heartbeat_seconds=0.5) as again:
            assert again.id == worker.id
            await again.consume()
            run = await world.executor.schedule_many(20, again.id)
            await world.all_ended(run, "completed")
        assert await world.outcomes() == {"failed": 200}
