"""The canary: messages of dlq-handler that are dead-lettered with the key of a real worker, and must arrive."""

import json
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from itertools import product
from math import isnan
from uuid import UUID, uuid4

from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE, canary_body
from sandbox.attune import topology
from sandbox.attune.dead_letter_handler import StockDeadLetterHandler
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually
from tests.support.least_rights import as_user, least_rights
from tests.support.sidecar import SidecarProcess, sidecar_process
from tests.support.stock_world import StockWorld
from tests.support.world import management_url

# Short waits. The monitor's lease decides which replica sends the canaries.
QUICK = {
    "canary__interval_seconds": "1",
    "canary__ttl_ms": "200",
    "canary__limit_seconds": "3",
    "monitor__interval_seconds": "1",
}


def a_sidecar(
    world: StockWorld, rabbitmq: RabbitMQ, name: str = "sidecar-1", **settings: str
) -> AbstractAsyncContextManager[SidecarProcess]:
    url = management_url(rabbitmq)
    return world.sidecar(name, start=True, **QUICK | {"broker__management_url": url} | settings)


async def until(*sidecars: SidecarProcess, ok: int = 0, lost: int = 0, unknown: int = 0) -> None:
    """The numbers of workers by the state of their canary, which the leader alone reports."""
    wanted = {"ok": ok, "lost": lost, "unknown": unknown}

    async def is_so() -> bool:
        scrapes = [await sidecar.metrics() for sidecar in sidecars]
        counts = dict.fromkeys(wanted, 0.0)
        for state, scrape in product(wanted, scrapes):
            count = scrape[f'dlq_handler_canary_workers{{state="{state}"}}']
            # Not a number: of a replica that does not lead.
            counts[state] += 0 if isnan(count) else count
        assert counts == wanted, [await sidecar.problems() for sidecar in sidecars]
        return True

    await eventually(is_so, timeout=60)


async def test_canaries_arrive_for_each_worker_and_are_not_counted_as_dead_letters(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    workers = [await world.lost_worker(name, ttl_ms=60_000) for name in ("one", "two")]
    async with a_sidecar(world, rabbitmq) as sidecar:
        await until(sidecar, ok=2)
        samples = await sidecar.metrics()
        assert samples["dlq_handler_canaries_arrived_total"] >= 2
        assert 0 < samples["dlq_handler_canary_seconds"] < 3.2
        assert samples["dlq_handler_canary_age_seconds"] < 10
        seen = await world.sql(
            "SELECT DISTINCT worker_id, queue FROM dlq_handler.canary WHERE received_at IS NOT NULL"
        )
        assert {tuple(row) for row in seen} == {(worker.id, topology.DLX_QUEUE) for worker in workers}
        await a_removed_binding_is_reported_and_restored(world, sidecar, workers[1].id)

        for name, value in (await sidecar.metrics()).items():
            if name.startswith(("dlq_handler_dead_letters", "dlq_handler_batch", "dlq_handler_decision")):
                assert value == 0, name
        assert await world.outcomes() == {}
        await a_forged_canary_is_recorded(world, workers[0].id)
        assert await sidecar.terminate() == 0
    for worker in workers:
        assert await topology.ready_count(world.amqp_url, topology.worker_queue(worker.id)) == 0
    await topology.verify_redeclare(world.amqp_url, {worker.id: 60_000 for worker in workers})


async def a_removed_binding_is_reported_and_restored(
    world: StockWorld, sidecar: SidecarProcess, worker_id: int
) -> None:
    await unbind(world, worker_id)
    for event in ("canary.lost", "canary.recovered"):
        [logged] = await eventually(partial(sidecar.events, event), timeout=60)
        assert logged["worker_ids"] == [worker_id]
    await until(sidecar, ok=2)
    assert (await sidecar.readyz())[0] == 200


async def a_forged_canary_is_recorded(world: StockWorld, worker_id: int) -> None:
    """One that only looks like a canary is a dead letter; a real one whose record was deleted is not."""
    deleted, forged = uuid4(), uuid4()
    await publish_canary(world, CANARY_EXCHANGE, worker_id, deleted)

    async def has_expired() -> bool:
        return await topology.ready_count(world.amqp_url, CANARY_QUEUE) == 0

    await eventually(has_expired)
    # Behind it in the intake queue: when this one is on record, the first one was received.
    await publish_canary(world, topology.DLX, worker_id, forged)
    await world.until_outcomes(unrelated=1)
    [row] = await world.sql("SELECT message_id FROM dlq_handler.letter")
    assert row["message_id"] == str(forged)


async def test_any_replica_may_receive_it_and_beside_another_consumer_its_state_is_unknown(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    await world.lost_worker(ttl_ms=60_000)
    async with a_sidecar(world, rabbitmq, "one") as one, a_sidecar(world, rabbitmq, "two") as two:
        await until(one, two, ok=1)
        for sidecar in (one, two):
            assert "other consumers" not in await sidecar.problems()
        async with StockDeadLetterHandler(world.amqp_url, world.database_url) as stock:
            await until(one, two, unknown=1)
            await eventually(partial(is_other_consumer_named, one, two))
        await until(one, two, ok=1)
        assert one.events("canary.lost") + two.events("canary.lost") == []
    assert await world.outcomes() == {}
    # A stock handler skips canaries: they name no execution.
    assert (set(stock.seen) <= {None}, stock.failed) == (True, [])


async def is_other_consumer_named(*sidecars: SidecarProcess) -> bool:
    named = [(await sidecar.problems()).get("other consumers", "") for sidecar in sidecars]
    return any("executor.dlq" in one for one in named)


async def test_the_printed_rights_suffice_for_canaries_and_the_doctor(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    await world.lost_worker(ttl_ms=60_000)
    async with (
        sidecar_process(
            world.folder,
            as_user(world.amqp_url),
            as_user(world.database_url),
            start=False,
            broker__management_url="http://127.0.0.1:9",
            # The doctor waits as long for its own canaries, also on a slow machine.
            **QUICK | {"canary__limit_seconds": "30"},
        ) as sidecar,
        least_rights(world, rabbitmq, sidecar),
    ):
        await sidecar.start()
        await until(sidecar, ok=1)
        code, out, _ = await sidecar.cli("doctor", "--output", "json")
        found = {one["check"]: one["health"] for one in json.loads(out)["diagnoses"]}
        assert (found["broker rights"], found["database rights"], found["canary"]) == ("ok", "ok", "ok")
        # No management API answers, and no executor consumes.
        assert (code, found["topology"]) == (1, "unknown")
        assert sidecar.events("canary.refused") == []


async def publish_canary(world: StockWorld, exchange: str, worker_id: int, message_id: UUID) -> None:
    """As a replica words it, with an id that no replica knows."""
    body = canary_body(
        message_id, worker_id=worker_id, queue=topology.DLX_QUEUE, sent_by="other", now=datetime.now(UTC)
    )
    await world.publish(exchange, topology.dispatch_key(worker_id), body, message_id=str(message_id))


async def unbind(world: StockWorld, worker_id: int) -> None:
    async with world.channel() as channel:
        queue = await channel.get_queue(topology.DLX_QUEUE)
        await queue.unbind(topology.DLX, topology.dispatch_key(worker_id))
