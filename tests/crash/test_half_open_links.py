"""Promise 5, for a network that swallows everything: both ends look connected, and not a byte passes."""

from tests.crash.world import CrashWorld, is_unready
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy


async def test_a_half_open_broker_connection_is_detected_by_heartbeats_and_replaced(
    world: CrashWorld,
) -> None:
    async with (
        TcpProxy.to(world.amqp_url) as proxy,
        world.sidecar(vhost=proxy.url, broker__heartbeat_seconds="1") as sidecar,
    ):
        await world.settled_once(await world.dead_lettered(20))
        proxy.freeze()
        dispatches = await world.dead_lettered(100)
        await eventually(lambda: sidecar.events("intake.closed"))
        assert await is_unready(sidecar)
        # The broker gives the letters of a consumer that does not answer back to the queue.
        await eventually(lambda: has_ready(world, 100))
        await proxy.heal()
        await world.settled_once(dispatches, may_repeat_completions=True)
        await sidecar.wait_ready()


async def test_a_half_open_database_connection_is_detected_by_deadlines_and_replaced(
    world: CrashWorld,
) -> None:
    async with (
        TcpProxy.to(world.database_url) as proxy,
        world.sidecar(
            database=proxy.url,
            database__connect_timeout_seconds="1",
            database__statement_timeout_ms="1000",
            database__lock_timeout_ms="500",
        ) as sidecar,
    ):
        await world.settled_once(await world.dead_lettered(20))
        proxy.freeze()
        dispatches = await world.dead_lettered(100)
        await eventually(lambda: sidecar.events("batch.delayed"))
        await eventually(lambda: is_unready(sidecar))
        await proxy.heal()
        await world.settled_once(dispatches)
        await sidecar.wait_ready()


async def has_ready(world: CrashWorld, count: int) -> bool:
    return await world.letters_ready() == count
