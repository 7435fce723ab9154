"""What must never happen: finished work changed, a live execution shot, a letter dropped."""

import json
from collections.abc import Mapping

import aio_pika
import aiormq
from pamqp.commands import Basic

from sandbox.attune.worker import StockWorker
from tests.support.builders import a_body
from tests.support.eventually import eventually
from tests.support.journey import World
from tests.support.sidecar import sidecar_process


async def put_letter(
    world: World, body: bytes, *, routing_key: str, headers: Mapping[str, object] | None = None, **more: str
) -> None:
    """Publish straight to the dead-letter exchange, as any sender may."""
    connection = await aio_pika.connect(world.amqp_url)
    async with connection:
        channel = await connection.channel(on_return_raises=True)
        exchange = await channel.get_exchange("attune.dlx", ensure=False)
        message = aio_pika.Message(body, headers=dict(headers or {}), **more)  # type: ignore[arg-type]  # any header
        await exchange.publish(message, routing_key, mandatory=True)


async def test_terminal_executions_are_never_changed(world: World) -> None:
    statuses = ["completed", "failed", "cancelled", "timeout", "abandoned"]
    worker = await world.vanished_worker(ttl_ms=1000)
    async with sidecar_process(world.folder, world.amqp_url, world.database_url, start=False) as sidecar:
        await sidecar.cli("topology", "apply")
        dispatched = await world.executor.schedule_many(len(statuses), worker.id)
        for dispatch, status in zip(dispatched, statuses, strict=True):
            await world.sql(
                "UPDATE execution SET status = $1::text::execution_status, result = '{}' WHERE id = $2",
                status,
                dispatch.execution_id,
            )
        before = await world.auditor.terminal_rows()
        assert len(before) == len(statuses)
        await sidecar.start()

        async def recorded() -> bool:
            return await world.outcomes() == {"already_terminal": len(statuses)}

        await eventually(recorded)
    assert await world.auditor.changed_terminal_rows(before) == []
    assert not await world.auditor.notices()


async def test_execution_dispatched_anew_is_not_failed_by_its_old_letter(world: World) -> None:
    gone = await world.vanished_worker("gone", ttl_ms=1000)
    alive = await world.vanished_worker("other", ttl_ms=600_000)
    async with sidecar_process(world.folder, world.amqp_url, world.database_url, start=False) as sidecar:
        await sidecar.cli("topology", "apply")
        [dispatch] = await world.executor.schedule_many(1, gone.id)
        await world.sql("UPDATE execution SET worker = $1", alive.id)
        await sidecar.start()

        async def recorded() -> bool:
            return await world.outcomes() == {"stale_attempt": 1}

        await eventually(recorded)
    assert await world.auditor.status(dispatch.execution_id) == "scheduled"


async def test_running_execution_of_a_live_worker_is_left_alone_and_of_a_dead_one_failed(
    world: World,
) -> None:
    alive = await world.vanished_worker("alive", ttl_ms=3000)
    dead = await world.vanished_worker("dead", ttl_ms=3000)
    # Old heartbeats prove something only to a link that is older than the limit: it is, when the letters die.
    async with sidecar_process(
        world.folder,
        world.amqp_url,
        world.database_url,
        ATTUNE__WORKER__HEARTBEAT_INTERVAL="1",
        worker__unavailable_after_seconds="1.5",
    ):
        [living] = await world.executor.schedule_many(1, alive.id)
        [dying] = await world.executor.schedule_many(1, dead.id)
        await world.sql("UPDATE execution SET status = 'running', started_at = now()")
        await world.sql(
            "UPDATE worker SET last_heartbeat = now() + interval '1 hour' WHERE id = $1", alive.id
        )
        await world.sql("UPDATE worker SET last_heartbeat = now() - interval '1 hour' WHERE id = $1", dead.id)
        await world.all_ended([dying])

        async def recorded() -> bool:
            return await world.outcomes() == {"left_to_monitor": 1, "failed": 1}

        await eventually(recorded)
        assert await world.auditor.status(living.execution_id) == "running"


async def test_letters_nobody_can_use_are_kept_and_do_not_stop_the_others(world: World) -> None:
    worker = await world.vanished_worker()
    key = f"execution.dispatch.worker.{worker.id}"
    async with sidecar_process(world.folder, world.amqp_url, world.database_url):
        await put_letter(world, b"not json", routing_key=key, message_id="m1")
        await put_letter(
            world, json.dumps(a_body(execution_id="7")).encode(), routing_key=key, message_id="m2"
        )
        await put_letter(
            world, json.dumps(a_body(execution_id=10**6)).encode(), routing_key=key, message_id="m3"
        )
        unrelated = a_body() | {"message_type": "ExecutionCompleted"}
        await put_letter(world, json.dumps(unrelated).encode(), routing_key=key, message_id="m4")
        await put_letter(
            world,
            json.dumps(a_body(execution_id=10**6 + 1)).encode(),
            routing_key=key,
            message_id="m5",
            headers={"x-death": "forged"},
        )
        dispatched = await world.executor.schedule_many(3, worker.id)
        await world.all_ended(dispatched)
        assert await world.outcomes() == {
            "unreadable": 2,
            "unknown_execution": 2,
            "unrelated": 1,
            "failed": 3,
        }


async def test_letters_no_client_can_decode_do_not_stop_the_ones_behind_them(world: World) -> None:
    worker = await world.vanished_worker(ttl_ms=300)
    key = f"execution.dispatch.worker.{worker.id}"
    body = json.dumps(a_body()).encode()
    async with sidecar_process(world.folder, world.amqp_url, world.database_url):
        for properties in undecodable_properties():
            await put_raw(world, body, key, properties)
        dispatched = await world.executor.schedule_many(3, worker.id)
        await world.all_ended(dispatched)
        assert await world.outcomes() == {"unreadable": 3, "failed": 3}


class RawProperties(Basic.Properties):
    """Properties that are sent as these bytes, whatever a decoder thinks of them."""

    raw = b""

    def marshal(self) -> bytes:
        return self.raw


def undecodable_properties() -> list[RawProperties]:
    timestamp_flag, message_id_flag = (1 << 6).to_bytes(2), (1 << 7).to_bytes(2)
    microseconds, nanoseconds = (1_790_000_000 * 10**6).to_bytes(8), (1_790_000_000 * 10**9).to_bytes(8)
    made = []
    for raw in (
        timestamp_flag + microseconds,
        timestamp_flag + nanoseconds,
        message_id_flag + b"\x02\xff\xfe",
    ):
        properties = RawProperties()
        properties.raw = raw
        # aiormq gives a message an id of its own when it has none; it is not sent.
        properties.message_id = "unsent"
        made.append(properties)
    return made


async def put_raw(world: World, body: bytes, routing_key: str, properties: RawProperties) -> None:
    connection = await aiormq.connect(world.amqp_url)
    async with connection:
        channel = await connection.channel()
        await channel.basic_publish(
            body, exchange="attune.dlx", routing_key=routing_key, properties=properties, mandatory=True
        )


async def test_rejected_dispatch_is_failed_with_words_of_its_own(world: World) -> None:
    worker = StockWorker(world.amqp_url, world.database_url, name="picky", ttl_ms=600_000)
    await worker.start()
    async with sidecar_process(world.folder, world.amqp_url, world.database_url):
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        connection = await aio_pika.connect(world.amqp_url)
        async with connection:
            channel = await connection.channel()
            queue = await channel.get_queue(f"worker.{worker.id}.executions", ensure=False)
            message = await eventually(lambda: queue.get(fail=False))
            assert message
            await message.reject(requeue=False)
            await world.all_ended([dispatch])
    await worker.close()
    result = await world.auditor.result(dispatch.execution_id)
    assert result["error"] == "Dispatch was rejected"
    assert result["reason"] == "rejected"
    assert "expired_at" not in result
