"""What operators do: look, reprocess, keep a stock executor away, switch it off."""

import json

from sandbox.attune import topology
from sandbox.attune.dead_letter_handler import StockDeadLetterHandler
from sandbox.servers import RabbitMQ
from tests.acceptance.test_untouched import put_letter
from tests.support.builders import a_body
from tests.support.eventually import eventually
from tests.support.journey import World
from tests.support.sidecar import sidecar_process

OWN_QUEUE = "attune.dlx.sidecar.queue"


async def test_own_intake_queue_keeps_a_stock_executor_from_our_letters(world: World) -> None:
    worker = await world.vanished_worker()
    async with (
        StockDeadLetterHandler(world.amqp_url, world.database_url) as stock,
        sidecar_process(world.folder, world.amqp_url, world.database_url, intake__queue=OWN_QUEUE),
    ):
        dispatched = await world.executor.schedule_many(50, worker.id)
        await world.all_ended(dispatched)
        assert stock.seen == []
        await topology.verify_redeclare(world.amqp_url, {worker.id: 500})


async def test_foreign_consumer_on_the_intake_queue_is_told_of(world: World, rabbitmq: RabbitMQ) -> None:
    async with (
        StockDeadLetterHandler(world.amqp_url, world.database_url),
        sidecar_process(
            world.folder, world.amqp_url, world.database_url, broker__management_url=api_of(rabbitmq)
        ) as sidecar,
    ):

        async def told() -> bool:
            _, answer = await sidecar.readyz()
            note = answer["notes"].get("other_consumer", "")
            return "'executor.dlq'" in note and "queue of our own" in note

        await eventually(told)
        assert sidecar.events("intake.shared")


async def test_replicas_of_ours_are_no_foreign_consumers(world: World, rabbitmq: RabbitMQ) -> None:
    async with (
        sidecar_process(world.folder, world.amqp_url, world.database_url, name="one"),
        sidecar_process(
            world.folder,
            world.amqp_url,
            world.database_url,
            name="two",
            broker__management_url=api_of(rabbitmq),
        ) as sidecar,
    ):

        async def both_seen() -> bool:
            return (await sidecar.metrics())["dlq_handler_dlq_consumers"] == 2

        await eventually(both_seen)
        _, answer = await sidecar.readyz()
        assert "other_consumer" not in answer["notes"]


def api_of(rabbitmq: RabbitMQ) -> str:
    return rabbitmq.management_url.replace("://", f"://{rabbitmq.user}:{rabbitmq.password}@")


async def test_unknown_execution_is_failed_by_reprocessing_once_it_exists(world: World) -> None:
    worker = await world.vanished_worker(ttl_ms=600_000)
    key = f"execution.dispatch.worker.{worker.id}"
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        body = a_body(
            execution_id=77, worker_id=worker.id, scheduled_attempt_updated_at="2026-01-02T03:04:05.678901Z"
        )
        await put_letter(world, json.dumps(body).encode(), routing_key=key, message_id="m")

        async def kept() -> bool:
            return await world.outcomes() == {"unknown_execution": 1}

        await eventually(kept)
        await world.sql(
            "INSERT INTO execution (id, action_ref, status, worker, updated)"
            " VALUES (77, 'core.echo', 'scheduled', $1, '2026-01-02T03:04:05.678901Z')",
            worker.id,
        )
        [reprocessed] = await sidecar.cli_json(
            "letters", "reprocess", "--all", "--reason", "it exists by now"
        )
        assert reprocessed["outcome"] == "failed"
        assert reprocessed["before"] in ("unknown_execution", None), "None: the sidecar itself was quicker"
        assert await world.auditor.status(77) == "failed"

        async def announced() -> bool:
            return (await world.auditor.notice_counts())[77] == 1

        await eventually(announced)
        assert await world.outcomes() == {"failed": 1}


async def test_letters_are_listed_by_filter_and_shown_without_their_body(world: World) -> None:
    worker = await world.vanished_worker()
    key = f"execution.dispatch.worker.{worker.id}"
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        await put_letter(world, b'{"password": "hunter2"}', routing_key=key, message_id="m")
        dispatched = await world.executor.schedule_many(3, worker.id)
        await world.all_ended(dispatched)
        assert len(await sidecar.cli_json("letters", "list", "--reason", "expired")) == 3
        assert len(await sidecar.cli_json("letters", "list", "--limit", "2")) == 2
        assert await sidecar.cli_json("letters", "list", "--since", "2100-01-01T00:00:00Z") == []
        assert len(await sidecar.cli_json("letters", "list", "--since", "1h")) == 4
        [unreadable] = await sidecar.cli_json("letters", "list", "--outcome", "unreadable")
        shown = await sidecar.cli_json("letters", "show", str(unreadable["id"]))
        assert shown["body_size"] == len(b'{"password": "hunter2"}')
        assert "hunter2" not in json.dumps(shown) + sidecar.log_text()
        code, _, error = await sidecar.cli("letters", "show", "999999")
        assert code == 1
        assert "letters list" in error


async def test_switched_off_it_takes_no_letter_and_says_so(world: World) -> None:
    worker = await world.vanished_worker(ttl_ms=200)
    async with sidecar_process(
        world.folder,
        world.amqp_url,
        world.database_url,
        ATTUNE__MESSAGE_QUEUE__RABBITMQ__DEAD_LETTER__ENABLED="false",
    ) as sidecar:
        await world.executor.schedule_many(3, worker.id)

        async def expired() -> bool:
            return await topology.ready_count(world.amqp_url, topology.worker_queue(worker.id)) == 0

        await eventually(expired)
        assert sidecar.events("intake.disabled")
        assert await world.outcomes() == {}
        _, out, _ = await sidecar.cli("topology", "check")
        assert topology.worker_queue(worker.id) in out
        assert await sidecar.terminate() == 0


async def test_secrets_stay_out_of_the_log(world: World) -> None:
    worker = await world.vanished_worker()
    async with sidecar_process(
        world.folder, world.amqp_url, world.database_url, log__level="debug"
    ) as sidecar:
        dispatched = await world.executor.schedule_many(3, worker.id, config={"password": "hunter2"})
        await world.all_ended(dispatched)
        for url in (world.amqp_url, world.database_url):
            password = url.split("://")[1].split("@")[0].partition(":")[2]
            assert password not in sidecar.log_text()
        assert "hunter2" not in sidecar.log_text()


async def test_a_brake_that_holds_makes_a_replica_without_letters_unready_too(world: World) -> None:
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        await world.sql(
            "UPDATE dlq_handler.brake SET tripped_at = now(), tripped_by = 'another', why = 'many'"
        )

        async def is_held() -> bool:
            status, answer = await sidecar.readyz()
            return status == 503 and "brake" in answer["checks"]["consumer"]["detail"]

        await eventually(is_held)
        code, _, complaint = await sidecar.cli("brake", "release", "--reason", "they are gone")
        assert code == 0, complaint
        await sidecar.wait_ready()
        assert (await sidecar.cli_json("brake", "status"))["state"] == "released"
        assert (await sidecar.cli("brake", "release", "--for", "0s", "--reason", "over"))[0] == 0
        assert (await sidecar.cli_json("brake", "status"))["state"] == "normal", "the limit is back"


async def test_a_host_that_locks_its_tables_is_no_bug_of_ours(world: World) -> None:
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        async with world.locked("execution", "worker"):
            await eventually(lambda: sidecar.events("loop.interrupted"))
        await sidecar.wait_ready()
    assert sidecar.events("loop.crashed") == []
