"""Queue, bindings or vhost are deleted or created anew: dlq-handler restores its consumer and every binding."""

from collections.abc import Awaitable, Callable
from urllib.parse import quote

import httpx
import pytest
from aiormq.abc import AbstractChannel

from sandbox.attune import topology
from sandbox.attune.amqp import open_connection
from sandbox.servers import PrivateRabbitMQ
from tests.crash.world import CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess


async def test_the_intake_queue_deleted_under_the_consumer_comes_back_as_stock_declares_it(
    world: CrashWorld, rabbitmq: PrivateRabbitMQ
) -> None:
    async with world.sidecar() as sidecar:
        await with_channel(world.amqp_url, lambda channel: channel.queue_delete(topology.DLX_QUEUE))
        await eventually(lambda: consumes_again(sidecar))
        await eventually(lambda: is_bound(rabbitmq, world))
        await world.settled_once(await world.let_expire(50))
        await topology.verify_redeclare(world.amqp_url, {world.worker_id: 50})


async def test_the_intake_queue_re_created_with_other_arguments_is_consumed(
    world: CrashWorld, rabbitmq: PrivateRabbitMQ
) -> None:
    async def re_create_as_quorum(channel: AbstractChannel) -> None:
        await channel.queue_delete(topology.DLX_QUEUE)
        await channel.queue_declare(topology.DLX_QUEUE, durable=True, arguments={"x-queue-type": "quorum"})

    async with world.sidecar() as sidecar:
        await with_channel(world.amqp_url, re_create_as_quorum)
        await eventually(lambda: consumes_again(sidecar))
        await eventually(lambda: is_bound(rabbitmq, world))
        await world.settled_once(await world.let_expire(50))
        [queue] = [
            one for one in await of_vhost(rabbitmq, "queues", world) if one["name"] == topology.DLX_QUEUE
        ]
        assert queue["type"] == "quorum", "what others made is used as it is"


async def test_connections_closed_by_an_operator_are_opened_again(
    world: CrashWorld, rabbitmq: PrivateRabbitMQ
) -> None:
    async with world.sidecar() as sidecar:
        await world.settled_once(await world.dead_lettered(20))
        for connection in await eventually(lambda: connections_of(rabbitmq, sidecar)):
            await close_connection(rabbitmq, connection)
        await eventually(lambda: consumes_again(sidecar))
        await world.settled_once(await world.dead_lettered(50))


async def close_connection(rabbitmq: PrivateRabbitMQ, name: str) -> None:
    """As an operator does. The API lists a connection for a while after its end, and then answers 404."""
    try:
        await rabbitmq.ask("DELETE", f"connections/{quote(name, safe='')}")
    except httpx.HTTPStatusError as refused:
        if refused.response.status_code != httpx.codes.NOT_FOUND:
            raise


@pytest.mark.parametrize("how", ["everything in it deleted", "vhost deleted and re-created"])
async def test_a_wiped_broker_gets_its_topology_back(
    world: CrashWorld, rabbitmq: PrivateRabbitMQ, how: str
) -> None:
    async with world.sidecar() as sidecar:
        await world.settled_once(await world.dead_lettered(20))
        if how == "everything in it deleted":
            await wipe(rabbitmq, world)
        else:
            await rabbitmq.delete_vhost(world.vhost_name)
            await rabbitmq.create_vhost(world.vhost_name)
        await eventually(lambda: consumes_again(sidecar))
        await eventually(lambda: is_bound(rabbitmq, world))
        # What is Attune's comes back with Attune's services, argument for argument, beside what we made.
        await topology.verify_redeclare(world.amqp_url, {world.worker_id: 50})
        await world.auditor.close()
        await world.auditor.start()
        await world.settled_once(await world.let_expire(50))
        await sidecar.wait_ready()


async def consumes_again(sidecar: SidecarProcess) -> bool:
    status, _ = await sidecar.readyz()
    return len(sidecar.events("intake.opened")) >= 2 and status == 200


async def is_bound(rabbitmq: PrivateRabbitMQ, world: CrashWorld) -> bool:
    bindings = await of_vhost(rabbitmq, "bindings", world)
    wanted = (topology.DLX, topology.DLX_QUEUE, topology.dispatch_key(world.worker_id))
    return wanted in {(one["source"], one["destination"], one["routing_key"]) for one in bindings}


async def of_vhost(rabbitmq: PrivateRabbitMQ, what: str, world: CrashWorld) -> list[dict[str, str]]:
    answer: list[dict[str, str]] = (
        await rabbitmq.ask("GET", f"{what}/{quote(world.vhost_name, safe='')}")
    ).json()
    return answer


async def connections_of(rabbitmq: PrivateRabbitMQ, sidecar: SidecarProcess) -> list[str]:
    """All of them. The management API is some seconds behind."""
    found = {
        one["name"]: one["client_properties"]["connection_name"]
        for one in (await rabbitmq.ask("GET", "connections")).json()
        if sidecar.name in one.get("client_properties", {}).get("connection_name", "")
    }
    assert {purpose.split()[-1] for purpose in found.values()} >= {"intake", "publisher", "topology"}
    return list(found)


async def wipe(rabbitmq: PrivateRabbitMQ, world: CrashWorld) -> None:
    for what in ("exchanges", "queues"):
        for one in await of_vhost(rabbitmq, what, world):
            if one["name"].startswith(("attune.", "worker.", "sandbox.")):
                await rabbitmq.ask(
                    "DELETE", f"{what}/{quote(world.vhost_name, safe='')}/{quote(one['name'], safe='')}"
                )


async def with_channel(vhost: str, act: Callable[[AbstractChannel], Awaitable[object]]) -> None:
    connection = await open_connection(vhost)
    async with connection:
        channel = await connection.channel()
        await act(await channel.get_underlay_channel())
