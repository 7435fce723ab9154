"""Every replica receives the retired queue, and only with `dlq_handler.lifecycle.enabled`."""

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import count_queue
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.stock_world import StockWorld

PART = "retired_consumer"


async def consumes(sidecar: SidecarProcess) -> bool:
    _, answer = await sidecar.readyz()
    return bool(answer["checks"].get(PART, {}).get("ok"))


async def test_two_replicas_receive_what_is_sent_to_a_retired_worker(world: StockWorld) -> None:
    worker = await world.lost_worker()
    async with (
        world.sidecar(lifecycle__enabled="true") as one,
        world.sidecar(name="sidecar-2", lifecycle__enabled="true") as other,
        AdminConnection(BrokerAddress(urls=[world.amqp_url])) as admin,
    ):
        await eventually(lambda: consumes(one))
        await eventually(lambda: consumes(other))
        counts = await count_queue(admin, RETIRED_QUEUE)
        assert counts is not None
        assert counts.consumers == 2
        async with admin.channel("reroute for a test") as channel:
            key = f"execution.dispatch.worker.{worker.id}"
            await channel.queue_bind(RETIRED_QUEUE, "attune.executions", key)
            await channel.queue_unbind(f"worker.{worker.id}.executions", "attune.executions", key)
        await world.executor.schedule_many(6, worker.id)
        # The worker still has a queue, which may hold the same dispatches.
        await world.until_outcomes(left_to_monitor=6)

        letters = await one.cli_json("letters", "list", "--limit", "10")
        assert {(letter["queue"], letter["reason"]) for letter in letters} == {(RETIRED_QUEUE, "rescued")}
        assert await one.terminate() == 0
        assert await other.terminate() == 0


@pytest.mark.parametrize(
    ("lifecycle", "shadow"), [("false", "false"), ("true", "true")], ids=["off", "shadow"]
)
async def test_without_the_lifecycle_and_in_shadow_mode_nothing_is_declared_or_consumed(
    world: StockWorld, lifecycle: str, shadow: str
) -> None:
    async with (
        world.sidecar(lifecycle__enabled=lifecycle, shadow__enabled=shadow) as sidecar,
        AdminConnection(BrokerAddress(urls=[world.amqp_url])) as admin,
    ):
        _, answer = await sidecar.readyz()
        assert PART not in answer["checks"]
        assert await count_queue(admin, RETIRED_QUEUE) is None
        assert await sidecar.terminate() == 0
