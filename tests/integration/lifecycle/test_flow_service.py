"""The whole replica: it leads, acts on wishes, and receives what comes after a stop."""

from pathlib import Path

import pytest

from dlq_handler.lifecycle.flow import FlowStatus
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from tests.integration.lifecycle.flow_world import FlowWorld, fleet, flows, post
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

__all__ = ["fleet", "flows", "post"]

ENABLED = {
    "ATTUNE__DLQ_HANDLER__LIFECYCLE__ENABLED": "true",
    "ATTUNE__DLQ_HANDLER__LIFECYCLE__INTERVAL_SECONDS": "0.2",
    "ATTUNE__DLQ_HANDLER__LIFECYCLE__SETTLE_SECONDS": "0",
}


@pytest.fixture
async def replica(flows: FlowWorld, vhost: str, database: str, tmp_path: Path) -> SidecarProcess:
    # The watchpost of this test must not lead.
    await flows.post.sql("DELETE FROM own.lease")
    return SidecarProcess(tmp_path, amqp_url=vhost, database_url=database, name="one", environment=ENABLED)


async def test_a_replica_starts_and_stops_a_flow_and_receives_what_comes_later(
    flows: FlowWorld, replica: SidecarProcess
) -> None:
    worker = await flows.stopped_worker()
    await replica.start()
    try:

        async def has(status: FlowStatus) -> bool:
            return (await flows.flow()).status is status

        await flows.start(id=str(worker.id))
        await eventually(lambda: has(FlowStatus.ACTIVE))
        queued = await flows.fleet.dispatch(worker, 2)
        await flows.stop()
        await eventually(lambda: has(FlowStatus.STOPPED), timeout=60)
        assert await flows.fleet.statuses(queued) == ["failed"] * 2
        assert f"worker.{worker.id}.executions" not in await flows.queues()

        later = await flows.fleet.dispatch(worker, 1)

        async def is_recorded() -> bool:
            return later[0].execution_id in {letter.execution_id for letter in await flows.post.letters()}

        await eventually(is_recorded)
        assert await flows.ready(RETIRED_QUEUE) == 0
        assert await replica.terminate() == 0
    finally:
        await replica.kill()
