"""A stop loses no message of a host that goes on publishing, wherever the process is killed, and by which replica it is
continued.
"""

import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dlq_handler.lifecycle.flow import FlowStatus, StopStep
from sandbox.attune.topology import DEFAULT_TTL_MS, verify_redeclare
from sandbox.servers import PrivateRabbitMQ
from tests.crash.flow_world import FlowCrashWorld, flow_crash_world
from tests.crash.world import CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.world import management_url


@pytest.fixture
async def flows(world: CrashWorld) -> AsyncIterator[FlowCrashWorld]:
    async with flow_crash_world(world) as one:
        yield one


async def is_killed(flows: FlowCrashWorld, victim: SidecarProcess) -> None:
    assert await victim.wait(timeout=120) == -signal.SIGKILL, victim.log_text()[-4000:]
    await flows.lease_is_free()


async def killed_at(flows: FlowCrashWorld, victim: SidecarProcess, *points: str) -> None:
    """One process after the other, each killed at its point."""
    for point in points:
        await flows.start_replica(victim, point, ready=False)
        await is_killed(flows, victim)


async def test_a_stop_killed_at_every_step_loses_nothing(flows: FlowCrashWorld) -> None:
    worker = await flows.working("seven")
    async with flows.replica("victim", "after_step") as victim:
        flow_id = await flows.start(worker)
        async with flows.publishing(worker):
            await flows.runs_dispatches(worker)
            await flows.stop(flow_id)
            await is_killed(flows, victim)
            assert (await flows.flow(flow_id)).step is StopStep.SIGNALLED
            await killed_at(flows, victim, "after_step")
            assert (await flows.flow(flow_id)).step is StopStep.IDLE
            await flows.leaves(worker)
            await killed_at(flows, victim, "after_step", "after_bind", "after_unbind")
            flow = await flows.flow(flow_id)
            assert (flow.step, flow.rerouted_at) == (StopStep.REROUTED, None)
            await killed_at(flows, victim, "after_step", "after_drain")
            assert (await flows.flow(flow_id)).step is StopStep.DRAINED
            await killed_at(flows, victim, "after_step", "after_delete")
            assert (await flows.flow(flow_id)).step is StopStep.DELETED

            await flows.start_replica(victim)
            await flows.until(flow_id, FlowStatus.STOPPED, StopStep.STOPPED)
            assert await flows.queues(worker.id) == []
            await victim.kill()
            await flows.lease_is_free()

            # The queues are gone, so the worker declares them again as at its first start.
            again = await flows.working("seven")
            await killed_at(flows, victim, "after_return")
            await flows.start_replica(victim)
            await flows.until(flow_id, FlowStatus.ACTIVE)
            await flows.runs_dispatches(again)
        await flows.nothing_is_lost()
    await verify_redeclare(flows.world.amqp_url, {worker.id: DEFAULT_TTL_MS})


async def test_a_clean_up_killed_at_every_step_loses_nothing(flows: FlowCrashWorld) -> None:
    """`dlq-handler queues retire`, for a worker that is unavailable: no flow has started its queues."""
    worker = await flows.worker("seven")
    await flows.vanishes(worker)
    async with flows.replica("victim") as victim:
        await victim.kill()
        await flows.lease_is_free()
        record_id = await flows.retire(worker)
        async with flows.publishing(worker):
            await killed_at(flows, victim, "after_bind", "after_unbind", "after_drain", "after_delete")
            await flows.start_replica(victim)
            await flows.until(record_id, FlowStatus.STOPPED, StopStep.STOPPED)
            assert await flows.queues(worker.id) == []
        await flows.nothing_is_lost()
    await verify_redeclare(flows.world.amqp_url, {worker.id: DEFAULT_TTL_MS})


@pytest.mark.parametrize(
    ("blueprint", "has_management"), [("worker", False), ("worker", True), ("quorum", False)]
)
async def test_the_other_replica_completes_the_stop_of_a_leader_killed_while_it_drains(
    flows: FlowCrashWorld, rabbitmq: PrivateRabbitMQ, blueprint: str, has_management: bool
) -> None:
    """Between commit and acknowledgement."""
    settings: dict[str, Any] = {"broker__management_url": management_url(rabbitmq)} if has_management else {}
    is_stock = blueprint == "worker"
    worker = await (flows.worker("seven") if is_stock else flows.waiting_worker("seven"))
    async with flows.replica("killed", "a_short_lease", "after_drain", **settings) as victim:
        await eventually(lambda: victim.events("leadership.acquired"))
        async with flows.replica("successor", "a_short_lease", **settings) as successor:
            flow_id = await flows.start(worker, blueprint)
            if not is_stock:
                await flows.begins(worker)
            await worker.consume()
            async with flows.publishing(worker):
                await flows.runs_dispatches(worker)
                await flows.stop(flow_id)
                await flows.until(flow_id, FlowStatus.STOPPING, StopStep.IDLE)
                await flows.leaves(worker)
                assert await victim.wait() == -signal.SIGKILL
                await flows.until(flow_id, FlowStatus.STOPPED, StopStep.STOPPED)
                assert successor.events("flow.stopped")
                assert await flows.queues(worker.id) == []
            await flows.nothing_is_lost()
    await verify_redeclare(flows.world.amqp_url, {worker.id: DEFAULT_TTL_MS})
