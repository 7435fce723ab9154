"""A worker that returns while its queues are retired ends with a bound queue, at every step, and no message is lost."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq_handler.lifecycle.flow import FlowStatus, StopStep
from sandbox.attune.topology import DEFAULT_TTL_MS, verify_redeclare
from tests.crash.flow_world import FlowCrashWorld, flow_crash_world
from tests.crash.world import CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

BEFORE_THE_UNBIND = ("signalled", "idle")
STEPS = (*BEFORE_THE_UNBIND, "rerouted", "drained", "deleted", "stopped")


@pytest.fixture
async def flows(world: CrashWorld) -> AsyncIterator[FlowCrashWorld]:
    async with flow_crash_world(world) as one:
        yield one


def is_frozen(sidecar: SidecarProcess) -> bool:
    state = Path(f"/proc/{sidecar.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


async def test_a_worker_that_returns_at_any_step_has_a_bound_queue(flows: FlowCrashWorld) -> None:
    """Two of them: the queues of one are a flow's; those of the other are cleaned up, as no flow has them."""
    flow_worker, orphan = await flows.working("seven"), await flows.working("eight")
    async with flows.replica("starter") as starter:
        flow_id = await flows.start(flow_worker)
        await starter.terminate()
    async with flows.publishing(flow_worker, orphan, cancels=False):
        for step in STEPS:
            pause: dict[str, Any] = {} if step == "stopped" else {"lifecycle__pause_after": step}
            async with flows.replica(f"at-{step}", **pause) as replica:
                await flows.leaves(orphan)
                await flows.leaves(flow_worker)
                if (await flows.flow(flow_id)).status is FlowStatus.ACTIVE:
                    await flows.stop(flow_id)
                record_id = await flows.retire(orphan)
                for one in (flow_id, record_id):
                    if step == "stopped":
                        await flows.until(one, FlowStatus.STOPPED, StopStep.STOPPED)
                    else:
                        await flows.until_paused(one, step)

                # They declare as ever: the arguments are those of stock.
                flow_worker, orphan = await flows.working("seven"), await flows.working("eight")
                await flows.until_returned(record_id, FlowStatus.STOPPED)
                if step in BEFORE_THE_UNBIND:
                    # A flow is stopped while its worker works. This one takes its time.
                    assert (await flows.flow(flow_id)).status is FlowStatus.STOPPING
                else:
                    await flows.until_returned(flow_id, FlowStatus.ACTIVE)
                for worker in (flow_worker, orphan):
                    await flows.runs_dispatches(worker)
                await replica.terminate()
    async with flows.replica("last"):
        await flows.nothing_is_lost()
    ttls = {flow_worker.id: DEFAULT_TTL_MS, orphan.id: DEFAULT_TTL_MS}
    await verify_redeclare(flows.world.amqp_url, ttls)


async def test_the_late_unbind_of_a_frozen_leader_loses_nothing(flows: FlowCrashWorld) -> None:
    """It was frozen between the fence and the unbind, and goes on when another replica has bound the queue again."""
    worker = await flows.working("seven")
    settings: dict[str, Any] = {"lifecycle__interval_seconds": "1", "lifecycle__pause_after": "rerouted"}
    async with flows.replica("frozen", "a_short_lease", "frozen_at_unbind", **settings) as frozen:
        await eventually(lambda: frozen.events("leadership.acquired"))
        async with flows.replica("successor", "a_short_lease", **settings) as successor:
            flow_id = await flows.start(worker)
            async with flows.publishing(worker):
                await flows.stop(flow_id)
                await flows.until(flow_id, FlowStatus.STOPPING, StopStep.IDLE)
                await flows.leaves(worker)
                await eventually(lambda: is_frozen(frozen), timeout=60)
                await eventually(lambda: successor.events("leadership.acquired"), timeout=60)
                await flows.until_paused(flow_id, "rerouted")
                again = await flows.working("seven")
                await flows.until_returned(flow_id, FlowStatus.ACTIVE)
                await flows.runs_dispatches(again)

                frozen.signal(signal.SIGCONT)
                await eventually(lambda: frozen.events("leadership.ended"), timeout=60)
                await flows.runs_dispatches(again)
                await flows.runs_dispatches(again)
            await flows.nothing_is_lost()
    await verify_redeclare(flows.world.amqp_url, {worker.id: DEFAULT_TTL_MS})


async def test_a_registration_waits_while_the_queues_are_deleted(flows: FlowCrashWorld) -> None:
    """It updates the worker's row, and declares the queues after that."""
    worker = await flows.worker("seven")
    await flows.leaves(worker)
    async with flows.replica("leader", "frozen_at_delete") as leader:
        flow_id = await flows.start(worker)
        async with flows.publishing(worker):
            await flows.stop(flow_id)
            await eventually(lambda: is_frozen(leader), timeout=60)
            returning = asyncio.create_task(flows.working("seven"))
            await eventually(flows.a_registration_waits)
            leader.signal(signal.SIGCONT)
            again = await returning
            await flows.until_returned(flow_id, FlowStatus.ACTIVE)
            await flows.runs_dispatches(again)
        await flows.nothing_is_lost()
    await verify_redeclare(flows.world.amqp_url, {worker.id: DEFAULT_TTL_MS})
