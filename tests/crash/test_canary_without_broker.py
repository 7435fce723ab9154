"""Canaries that are lost with the broker are no evidence of a broken route."""

from typing import Any

from dlq_handler.topology.canary import CanaryState
from sandbox.servers import PrivateRabbitMQ
from tests.crash.world import CrashWorld, is_unready
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

QUICK: dict[str, Any] = {
    "canary__enabled": "true",
    "canary__interval_seconds": "1",
    "canary__ttl_ms": "1000",
    "canary__limit_seconds": "3",
    "monitor__interval_seconds": "1",
}


async def test_a_broker_killed_with_canaries_in_it_makes_none_of_them_lost(
    world: CrashWorld, rabbitmq: PrivateRabbitMQ
) -> None:
    async with world.sidecar(**QUICK) as sidecar:
        await eventually(lambda: are_all(sidecar, "ok"), timeout=60)
        try:
            await rabbitmq.kill()
            await eventually(lambda: is_unready(sidecar))
            await eventually(lambda: are_all(sidecar, "unknown"), timeout=60)
        finally:
            await rabbitmq.start()
        await sidecar.wait_ready()
        await eventually(lambda: are_all(sidecar, "ok"), timeout=60)
        assert sidecar.events("canary.lost") == []
        assert not sidecar.events("loop.crashed")
    assert await world.sql("SELECT * FROM dlq_handler.letter") == []


async def are_all(sidecar: SidecarProcess, state: str) -> bool:
    metrics = await sidecar.metrics()
    counts = {one: metrics[f'dlq_handler_canary_workers{{state="{one}"}}'] for one in CanaryState}
    return counts[CanaryState(state)] > 0 and sum(counts.values()) == counts[CanaryState(state)]
