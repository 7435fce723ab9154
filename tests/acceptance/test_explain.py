"""`executions explain`: the whole history of one execution."""

from typing import Any

import pytest

from sandbox.servers import RabbitMQ
from tests.support.least_rights import USER, as_user, least_rights
from tests.support.sidecar import sidecar_process
from tests.support.stock_world import StockWorld


def kinds(story: dict[str, Any]) -> list[str]:
    return [moment["kind"] for moment in story["moments"]]


@pytest.mark.usefixtures("admission_works")
async def test_open_execution_says_why_it_waits_and_until_when(world: StockWorld) -> None:
    worker = await world.lost_worker(ttl_ms=600_000)
    await world.executor.ensure_action("core.limited", concurrency_limit=1)
    first, second = [await world.executor.create_execution("core.limited") for _ in range(2)]
    assert await world.executor.admit(first)
    assert not await world.executor.admit(second)
    async with world.sidecar() as sidecar:
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        scheduled = await sidecar.cli_json("executions", "explain", str(dispatch.execution_id))
        assert kinds(scheduled) == ["created", "moved", "dispatched"]
        # The queue's own TTL, which is longer than what the settings say, and the grace.
        assert scheduled["waiting"]["evidence"]["deadline_seconds"] == 630
        assert scheduled["waiting"]["until"] > scheduled["now"]
        assert scheduled["waiting"]["unwatched"] is None

        requested, queued = [
            (await sidecar.cli_json("executions", "explain", str(number)))["waiting"]
            for number in (first, second)
        ]
        assert requested["until"] > scheduled["now"]
        assert queued["until"] is None

        await sidecar.terminate()
        unwatched = await sidecar.cli_json("executions", "explain", str(dispatch.execution_id))
        assert unwatched["waiting"]["unwatched"]
        _, out, _ = await sidecar.cli("executions", "explain", str(dispatch.execution_id))
        assert max(map(len, out[out.index("Still open: ") :].splitlines())) <= 120


async def test_without_the_history_and_the_broker_it_tells_what_is_left(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    worker = await world.lost_worker()
    async with (
        sidecar_process(
            world.folder, as_user(world.amqp_url), as_user(world.database_url), start=False
        ) as sidecar,
        least_rights(world, rabbitmq, sidecar),
    ):
        await world.sql(f"REVOKE SELECT ON execution_history FROM {USER}")
        await sidecar.start()
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        await world.all_ended([dispatch])
        number = str(dispatch.execution_id)
        story = await sidecar.cli_json("executions", "explain", number)
        assert not story["has_history"]
        assert kinds(story)[:5] == ["created", "dispatched", "dead_lettered", "decided", "changed"]
        await world.sql("UPDATE execution SET status = 'running' WHERE id = $1", dispatch.execution_id)
        assert (await sidecar.cli_json("executions", "explain", number))["waiting"]
