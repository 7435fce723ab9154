"""The canary: messages of our own that die with the key of a real worker, and must arrive."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid4

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE, canary_body
from sandbox.attune import topology
from sandbox.attune.dead_letter_handler import StockDeadLetterHandler
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.journey import World
from tests.support.least_rights import as_user, least_rights
from tests.support.sidecar import SidecarProcess, sidecar_process

# Every wait of the canary that a test would have to sit through, short; the monitor's lease decides who sends.
QUICK = {
    "canary__interval_seconds": "1",
    "canary__ttl_ms": "200",
    "canary__limit_seconds": "3",
    "monitor__interval_seconds": "1",
}


@asynccontextmanager
async def a_sidecar(
    world: World, rabbitmq: RabbitMQ, name: str = "sidecar-1", **environment: str
) -> AsyncIterator[SidecarProcess]:
    async with sidecar_process(
        world.folder,
        world.amqp_url,
        world.database_url,
        name=name,
        start=True,
        **(QUICK | {"broker__management_url": management_url(rabbitmq)} | environment),
    ) as sidecar:
        yield sidecar


def management_url(rabbitmq: RabbitMQ) -> str:
    parts = urlsplit(rabbitmq.management_url)
    return f"{parts.scheme}://{rabbitmq.user}:{rabbitmq.password}@{parts.netloc}"


async def states(sidecar: SidecarProcess) -> dict[str, float]:
    samples = await sidecar.metrics()
    return {
        state: samples[f'dlq_handler_canary_workers{{state="{state}"}}']
        for state in ("ok", "lost", "unknown")
    }


async def until(sidecar: SidecarProcess, *, ok: int = 0, lost: int = 0, unknown: int = 0) -> None:
    wanted = {"ok": ok, "lost": lost, "unknown": unknown}

    async def is_so() -> bool:
        seen = await states(sidecar)
        assert seen == wanted
        return True

    await eventually(is_so, timeout=60)


async def note(sidecar: SidecarProcess) -> str:
    status, answer = await sidecar.readyz()
    assert status == 200, answer
    return str(answer["notes"].get("canary", ""))


async def test_canaries_arrive_with_each_workers_key_and_are_in_no_record_and_no_metric_of_letters(
    world: World, rabbitmq: RabbitMQ
) -> None:
    workers = [await world.vanished_worker(name, ttl_ms=60_000) for name in ("one", "two")]
    async with a_sidecar(world, rabbitmq) as sidecar:
        await until(sidecar, ok=2)
        assert (await note(sidecar)).startswith("ok: arrives with the key of each of 2 worker(s)")
        assert (await sidecar.metrics())["dlq_handler_canaries_arrived_total"] >= 2
        samples = await sidecar.metrics()
        assert 0 < samples["dlq_handler_canary_seconds"] < 3.2
        assert samples["dlq_handler_canary_age_seconds"] < 10
        counted = {
            name: value
            for name, value in samples.items()
            if value
            and name.startswith(("dlq_handler_dead_letters", "dlq_handler_batch", "dlq_handler_decision"))
        }
        assert counted == {}
        assert sidecar.events("dead_letter.decided") == []
        seen = await world.sql(
            "SELECT DISTINCT worker_id, queue FROM dlq_handler.canary WHERE seen_at IS NOT NULL"
        )
        assert {(row["worker_id"], row["queue"]) for row in seen} == {
            (worker.id, topology.DLX_QUEUE) for worker in workers
        }
        assert await sidecar.terminate() == 0
    assert await world.outcomes() == {}
    for worker in workers:
        assert await topology.ready_count(world.amqp_url, topology.worker_queue(worker.id)) == 0
    await topology.verify_redeclare(world.amqp_url, {worker.id: 60_000 for worker in workers})


async def test_what_only_calls_itself_a_canary_is_kept_on_record_and_one_whose_probe_is_deleted_is_not(
    world: World, rabbitmq: RabbitMQ
) -> None:
    worker = await world.vanished_worker(ttl_ms=200)
    async with a_sidecar(world, rabbitmq) as sidecar:
        await until(sidecar, ok=1)
        deleted, forged, died_elsewhere = uuid4(), uuid4(), uuid4()
        await publish_canary(world, CANARY_EXCHANGE, worker.id, deleted)

        async def has_died() -> bool:
            return await topology.ready_count(world.amqp_url, CANARY_QUEUE) == 0

        await eventually(has_died)
        # Behind it in the intake queue: once these are on record, the first one was taken.
        await publish_canary(world, topology.DLX, worker.id, forged)
        await publish_canary(world, topology.EXECUTIONS, worker.id, died_elsewhere)

        async def are_kept() -> bool:
            return sum((await world.outcomes()).values()) >= 2

        await eventually(are_kept)
        samples = await sidecar.metrics()
        assert sum(n for name, n in samples.items() if name.startswith("dlq_handler_dead_letters_total")) == 2
        assert await sidecar.terminate() == 0
    rows = await world.sql("SELECT message_id, queue, outcome FROM dlq_handler.letter")
    assert {tuple(row) for row in rows} == {
        (str(forged), None, "others"),
        (str(died_elsewhere), topology.worker_queue(worker.id), "others"),
    }


async def test_a_binding_that_is_removed_is_told_for_that_worker_alone_and_made_again(
    world: World, rabbitmq: RabbitMQ
) -> None:
    _, broken = [await world.vanished_worker(name, ttl_ms=60_000) for name in ("one", "two")]
    async with a_sidecar(world, rabbitmq) as sidecar:
        await until(sidecar, ok=2)
        await unbind(world, broken.id)
        [lost] = await eventually(lambda: sidecar.events("canary.lost"), timeout=60)
        assert lost["worker_ids"] == [broken.id]
        # A lost canary has the bindings made again, so that it comes back by itself.
        [returned] = await eventually(lambda: sidecar.events("canary.returned"), timeout=60)
        assert returned["worker_ids"] == [broken.id]
        await until(sidecar, ok=2)
        assert (await sidecar.readyz())[0] == 200


async def test_with_two_replicas_either_may_take_it_and_a_foreign_consumer_makes_both_say_nothing(
    world: World, rabbitmq: RabbitMQ
) -> None:
    await world.vanished_worker(ttl_ms=60_000)
    async with a_sidecar(world, rabbitmq, "one") as one, a_sidecar(world, rabbitmq, "two") as two:
        for sidecar in (one, two):
            await until(sidecar, ok=1)
        async with StockDeadLetterHandler(world.amqp_url, world.database_url) as stock:
            for sidecar in (one, two):
                await until(sidecar, unknown=1)
                assert "'executor.dlq' also consume(s)" in await note(sidecar)
        for sidecar in (one, two):
            await until(sidecar, ok=1)
            assert sidecar.events("canary.lost") == []
    assert await world.outcomes() == {}
    # What it took, if anything, it skipped: a canary names no execution.
    assert (set(stock.seen) <= {None}, stock.failed) == (True, [])


async def test_with_the_printed_rights_there_is_a_canary_and_the_doctor_finds_nothing_missing(
    world: World, rabbitmq: RabbitMQ
) -> None:
    await world.vanished_worker(ttl_ms=60_000)
    async with (
        sidecar_process(
            world.folder,
            as_user(world.amqp_url),
            as_user(world.database_url),
            start=False,
            broker__management_url="http://127.0.0.1:9",
            **QUICK,
        ) as sidecar,
        least_rights(world, rabbitmq, sidecar),
    ):
        await sidecar.start()
        await until(sidecar, ok=1)
        code, out, _ = await sidecar.cli("doctor", "--output", "json")
        states = {seen["check"]: seen["health"] for seen in json.loads(out)["observations"]}
        assert (states["broker rights"], states["database rights"]) == ("ok", "ok")
        assert states["canary"] == "ok"
        # No management API answers.
        assert (code, states["topology"]) == (1, "unknown"), "no executor runs here"
        assert sidecar.events("canary.refused") == []


async def test_in_shadow_mode_canaries_are_to_arrive_among_the_copies_and_are_no_copies(
    world: World, rabbitmq: RabbitMQ
) -> None:
    await world.vanished_worker(ttl_ms=60_000)
    async with a_sidecar(world, rabbitmq, shadow__enabled="true") as sidecar:
        await until(sidecar, ok=1)
        assert (await world.sql("SELECT DISTINCT queue FROM dlq_handler.canary"))[0][
            0
        ] == "attune.dlx.shadow.queue"
    assert await world.outcomes() == {}
    assert await topology.ready_count(world.amqp_url, topology.DLX_QUEUE) == 0


async def test_the_doctor_tells_an_operator_what_is_wrong_and_ends_with_the_right_code(
    world: World, rabbitmq: RabbitMQ
) -> None:
    await world.vanished_worker(ttl_ms=60_000)
    async with a_sidecar(world, rabbitmq) as sidecar:
        await consumers_are_told(world, rabbitmq)
        # The executor of this world consumes nothing.
        code, out, err = await sidecar.cli("doctor")
        assert code == 1, out
        lines = out.splitlines()
        assert lines[0].split() == ["STATE", "PART", "CHECK", "WHAT"]
        assert lines[1].startswith("problem")
        assert any(line.startswith("  fix: restart Attune's executor") for line in lines)
        assert "right now (`dlq-handler status` tells all of it):" in lines
        assert lines[-1].startswith("conclusion: problem: ")
        assert "sent 1 canary message(s), waiting" in err
        async with consuming(world, topology.COMPLETED_QUEUE, topology.REQUESTS_QUEUE):
            code, out, _ = await sidecar.cli("doctor", "--output", "json")
        told = json.loads(out)
        assert (code, told["conclusion"]) == (0, "ok"), out
        kinds = [one["kind"] for one in told["right_now"]]
        assert {"brake", "worker gone", "announcing"} <= set(kinds)
        assert not {seen["check"] for seen in told["observations"]} & set(kinds), "told once"
        assert await sidecar.terminate() == 0
        code, out, _ = await sidecar.cli("doctor", "--no-canary", "--output", "json")
        told = {seen["check"]: seen for seen in json.loads(out)["observations"]}
        assert (code, told["sidecar"]["health"], "canary" in told) == (1, "problem", False)


async def consumers_are_told(world: World, rabbitmq: RabbitMQ) -> None:
    """The management API hears of a consumer some seconds after it is there."""
    vhost = unquote(urlsplit(world.amqp_url).path.removeprefix("/"))
    api = ManagementApi(management_url(rabbitmq), vhost=vhost)

    async def told() -> bool:
        return bool(await api.consumer_tags(topology.DLX_QUEUE))

    await eventually(told)


async def publish_canary(world: World, exchange: str, worker_id: int, message_id: UUID) -> None:
    """As the sidecar words it, but with an id that it does not know."""
    body = canary_body(
        message_id, worker_id=worker_id, queue=topology.DLX_QUEUE, sent_by="somebody", now=datetime.now(UTC)
    )
    connection = await aio_pika.connect(world.amqp_url)
    async with connection:
        channel = await connection.channel()
        message = aio_pika.Message(body, message_id=str(message_id))
        await (await channel.get_exchange(exchange)).publish(message, topology.dispatch_key(worker_id))


@asynccontextmanager
async def consuming(world: World, *queues: str) -> AsyncIterator[None]:
    connection = await aio_pika.connect(world.amqp_url)
    async with connection:
        channel = await connection.channel()
        for name in queues:
            await (await channel.get_queue(name)).consume(ignore)
        yield


async def ignore(_: AbstractIncomingMessage) -> None:
    """Nothing comes in these tests."""


async def unbind(world: World, worker_id: int) -> None:
    connection = await aio_pika.connect(world.amqp_url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.get_queue(topology.DLX_QUEUE)
        await queue.unbind(topology.DLX, topology.dispatch_key(worker_id))
