"""After a restart of the broker Attune's services run on without consumers: each is named, and what to do."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aio_pika

from sandbox.attune import topology
from sandbox.attune.worker import StockWorker
from sandbox.servers import PrivateRabbitMQ
from tests.crash.world import CrashWorld
from tests.integration.diagnosis.conftest import ignore
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.world import management_url

EXECUTOR = (topology.COMPLETED_QUEUE, topology.REQUESTS_QUEUE)


@asynccontextmanager
async def consumed(vhost: str, queues: Sequence[str]) -> AsyncIterator[None]:
    """As a service of Attune's consumes: once its connection is lost, it opens no other."""
    async with AsyncExitStack() as stack:
        connection = await aio_pika.connect(vhost)
        stack.push_async_callback(connection.close)
        channel = await connection.channel()
        for queue in queues:
            await (await channel.get_queue(queue)).consume(ignore)
        yield


@asynccontextmanager
async def heartbeats(world: CrashWorld, workers: Sequence[int]) -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            await world.sql(
                "UPDATE worker SET last_heartbeat = now() WHERE id = ANY ($1::bigint[])", list(workers)
            )
            await asyncio.sleep(0.5)  # the pace of a heartbeat

    async with asyncio.TaskGroup() as group:
        beating = group.create_task(beat())
        yield
        beating.cancel()


async def registered(world: CrashWorld, count: int) -> list[int]:
    """Workers that are on record and have their queues; the tests consume those."""
    found = []
    for number in range(count):
        worker = StockWorker(world.amqp_url, world.database_url, name=f"worker-{number}")
        await worker.start()
        await worker.die()
        found.append(worker.id)
    return found


async def services(sidecar: SidecarProcess) -> dict[str, Any]:
    """The diagnosis of `dlq-handler status`, a process of its own."""
    _, out, err = await sidecar.cli("status", "--output", "json")
    assert out, err
    [found] = [one for one in json.loads(out)["diagnoses"] if one["check"] == "services"]
    return dict(found)


async def test_after_a_broker_restart_the_services_that_do_not_consume_are_named(
    world: CrashWorld, rabbitmq: PrivateRabbitMQ
) -> None:
    workers = await registered(world, 2)
    queues = [topology.worker_queue(one) for one in workers]
    api = management_url(rabbitmq)
    settings: dict[str, Any] = {"broker__management_url": api, "ui__refresh_seconds": "1"}

    async def all_consume() -> bool:
        rows = await world.sql(
            "SELECT queue FROM dlq_handler.service_observation WHERE unconsumed_since IS NULL"
            " AND queue = ANY ($1::text[])",
            [*EXECUTOR, *queues],
        )
        return len(rows) == len(EXECUTOR) + len(queues)

    async def is_ok() -> bool:
        return bool((await services(sidecar))["health"] == "ok")

    async def are_named() -> dict[str, Any]:
        found = await services(sidecar)
        assert found["health"] == "problem", found
        assert found["explanation"].startswith("The broker restarted at "), found
        assert "worker-1" in found["explanation"], found
        return found

    async with heartbeats(world, workers), world.sidecar(**settings) as sidecar:
        async with consumed(world.amqp_url, [*EXECUTOR, *queues]):
            await eventually(all_consume, timeout=60)
            # `status` reads the view that the leader has shared, which may be older.
            await eventually(is_ok, timeout=60)
            await rabbitmq.stop()
            await rabbitmq.start()
            found = await eventually(are_named, timeout=90)
            ready = [await topology.ready_count(world.amqp_url, queue) for queue in queues]

            async def metrics_say() -> list[float]:
                samples = await sidecar.metrics()
                counts = [samples[f'dlq_handler_services_to_restart{{finding="{one}"}}'] for one in (
                    "executor_without_consumer", "worker_without_consumer", "worker_inactive"
                )]  # fmt: skip
                assert counts == [1, 2, 0]
                return counts

            await eventually(metrics_say)
            _, doctor, _ = await sidecar.cli("doctor", "--no-canary")
            shown = {one["check"]: one for one in await sidecar.diagnoses()}["services"]

        assert ready == [0, 0], "no message waits"
        # On a busy machine workers are found a minute after the executor, and are dated by a sentence of their own.
        assert "Since then the executor's queues have no consumer" in found["explanation"]
        assert "worker-0" in found["explanation"]
        assert found["explanation"].endswith("report without consuming.")
        assert found["action"] == "Restart the executor and these workers."
        assert found["runbook"] == "docs/runbook.md#services-without-consumers"
        assert found["explanation"] in doctor
        assert (shown["explanation"], shown["since"][:19]) == (found["explanation"], found["since"][:19])

        # As an operator must: the services are restarted, and consume again.
        async with consumed(world.amqp_url, [*EXECUTOR, *queues]):
            await eventually(is_ok, timeout=60)
