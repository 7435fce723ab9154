"""Stopping flows: each step on real servers, what ends a stop, and what is left when it ends."""

from datetime import timedelta

import pytest

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.lifecycle.flow import FlowKind, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_actions import SPARE, FlowChanged
from dlq_handler.lifecycle.wishes import retirement_id
from dlq_handler.operations.flow_operations import NoSuchFlow
from dlq_handler.operations.operations import Changed, Impossible
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from sandbox.attune.topology import verify_redeclare, worker_queue
from sandbox.attune.worker import StockWorker
from tests.integration.lifecycle.flow_world import ANN, FlowWorld, fleet, flows, post
from tests.support.eventually import eventually

__all__ = ["fleet", "flows", "post"]

STEPS = [step.value for step in StopStep if step is not StopStep.STOPPED]


def queues_of(worker: StockWorker) -> set[str]:
    return {f"worker.{worker.id}.{name}" for name in ("executions", "packs", "cancel")}


def own_keys(worker: StockWorker) -> set[str]:
    return {f"execution.dispatch.worker.{worker.id}", f"execution.cancel.worker.{worker.id}"}


async def active_flow(flows: FlowWorld, worker: StockWorker) -> None:
    await flows.started("w7", worker.id)


async def test_stop_loses_nothing_and_leaves_no_queue(flows: FlowWorld) -> None:
    """TrustGraph: the two phases of stop-flow, with the deletion that its own code never makes."""
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    queued = await flows.fleet.dispatch(worker, 3)
    runner = await flows.runner()
    await flows.stop()
    assert (await flows.flow()).status is FlowStatus.STOPPING
    await runner.tick()

    flow = await flows.flow()
    assert (flow.status, flow.step, flow.leaked, flow.last_error) == (
        FlowStatus.STOPPED,
        StopStep.STOPPED,
        (),
        None,
    )
    assert not queues_of(worker) & await flows.queues()
    assert await flows.fleet.statuses(queued) == ["failed"] * 3
    assert await flows.cordon(worker.id) == {"cordoned": True, "cordon_reason": "dlq-handler: retiring"}
    # A dispatch that is published now is kept.
    assert await flows.retired_keys() == own_keys(worker)
    await flows.fleet.dispatch(worker, 2)
    await eventually(lambda: flows.is_ready(RETIRED_QUEUE, 2))


async def test_a_live_consumer_is_never_cut_off(flows: FlowWorld) -> None:
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    runner = await flows.runner()
    await flows.stop()
    async with flows.consumer_of(worker_queue(worker.id)):
        await eventually(lambda: flows.post.consumer_of(worker_queue(worker.id)).count())
        for _ in range(3):
            await runner.tick()
        flow = await flows.flow()
        assert (flow.status, flow.step) == (FlowStatus.STOPPING, StopStep.IDLE)
        assert flow.last_error is not None
        assert f"1 consumer(s) of {worker_queue(worker.id)}" in flow.last_error
        assert await flows.keys(worker_queue(worker.id)) == {f"execution.dispatch.worker.{worker.id}"}
    await runner.tick()
    assert (await flows.flow()).status is FlowStatus.STOPPED


async def test_a_worker_that_still_works_is_cordoned_and_waited_for(flows: FlowWorld) -> None:
    worker = await flows.worker()
    await active_flow(flows, worker)
    runner = await flows.runner()
    await flows.stop()
    await runner.tick()
    flow = await flows.flow()
    assert (flow.step, flow.has_cordoned) == (StopStep.IDLE, True)
    assert "neither inactive nor unavailable" in (flow.last_error or "")
    await flows.post.sql("UPDATE worker SET status = 'inactive' WHERE id = :id", id=worker.id)
    await runner.tick()
    assert (await flows.flow()).status is FlowStatus.STOPPED


@pytest.mark.parametrize("step", STEPS)
async def test_a_stop_continues_at_its_step_in_another_process(flows: FlowWorld, step: str) -> None:
    """TrustGraph: a flow that its own service finds in `stopping` stays there."""
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    queued = await flows.fleet.dispatch(worker, 2)
    runner = await flows.runner("one", pause_after=step)
    await flows.stop()
    await runner.tick()
    flow = await flows.flow()
    assert (flow.status, flow.step) == (FlowStatus.STOPPING, StopStep(step))
    assert f"paused after step {step}" in (flow.last_error or "")

    await (await flows.runner("two")).tick()
    assert (await flows.flow()).status is FlowStatus.STOPPED
    assert await flows.fleet.statuses(queued) == ["failed"] * 2
    assert not queues_of(worker) & await flows.queues()


@pytest.mark.parametrize("step", ["rerouted", "drained", "deleted"])
async def test_a_worker_that_returns_gets_its_bound_queues_back(
    flows: FlowWorld, vhost: str, step: str
) -> None:
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    await flows.fleet.dispatch(worker, 2)
    runner = await flows.runner(pause_after=step)
    await flows.stop()
    await runner.tick()
    # Registration, without the declares that follow: they may come minutes later.
    await flows.post.sql(
        "UPDATE worker SET status = 'active', last_heartbeat = now() WHERE id = :id", id=worker.id
    )
    await runner.tick()

    flow = await flows.flow()
    assert flow.status is FlowStatus.ACTIVE
    assert f"worker {worker.id} has returned" in (flow.last_error or "")
    assert ("Restart worker" in (flow.last_error or "")) is (step == "deleted")
    assert await flows.keys(worker_queue(worker.id)) == {f"execution.dispatch.worker.{worker.id}"}
    assert await flows.retired_keys() == set()
    assert await flows.cordon(worker.id) == {"cordoned": False, "cordon_reason": None}
    await verify_redeclare(vhost, {worker.id: 300_000})


async def test_a_worker_that_returns_after_the_stop_has_its_queue_again(flows: FlowWorld, vhost: str) -> None:
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    runner = await flows.runner()
    await flows.stop()
    await runner.tick()
    again = await flows.worker()
    assert again.id == worker.id
    await runner.tick()
    assert (await flows.flow()).status is FlowStatus.ACTIVE
    assert await flows.retired_keys() == set()
    assert await flows.cordon(worker.id) == {"cordoned": False, "cordon_reason": None}
    await verify_redeclare(vhost, {worker.id: 300_000})


async def test_the_cordon_of_an_operator_stays(flows: FlowWorld) -> None:
    worker = await flows.stopped_worker()
    await flows.post.sql(
        "UPDATE worker SET cordoned = true, cordon_reason = 'disk' WHERE id = :id", id=worker.id
    )
    await active_flow(flows, worker)
    runner = await flows.runner(pause_after="rerouted")
    await flows.stop()
    await runner.tick()
    await flows.post.sql(
        "UPDATE worker SET status = 'active', last_heartbeat = now() WHERE id = :id", id=worker.id
    )
    await runner.tick()
    assert (await flows.flow()).status is FlowStatus.ACTIVE
    assert await flows.cordon(worker.id) == {"cordoned": True, "cordon_reason": "disk"}


async def test_bindings_that_a_late_unbind_removed_are_made_again(flows: FlowWorld) -> None:
    """For ten minutes after an aborted stop: a leader that was frozen may unbind after the new one has bound. Until
    then a second binding leads to the queue.
    """
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    runner = await flows.runner(pause_after="rerouted")
    await flows.stop()
    await runner.tick()
    await flows.post.sql(
        "UPDATE worker SET status = 'active', last_heartbeat = now() WHERE id = :id", id=worker.id
    )
    await runner.tick()

    key = f"execution.dispatch.worker.{worker.id}"
    await flows.unbind(worker_queue(worker.id), key)
    assert await flows.keys(worker_queue(worker.id)) == {key}
    await runner.tick()
    await flows.unbind(worker_queue(worker.id), key, **SPARE)
    assert await flows.keys(worker_queue(worker.id)) == {key}

    # A queue that a late delete removed while its worker goes on without a consumer.
    await flows.delete(worker_queue(worker.id))
    await runner.tick()
    assert await flows.keys(worker_queue(worker.id)) == {key}
    assert f"Restart worker {worker.id}" in ((await flows.flow()).last_error or "")

    await flows.set_flow(aborted_at="now() - interval '11 minutes'")
    await flows.unbind(worker_queue(worker.id), key)
    await flows.unbind(worker_queue(worker.id), key, **SPARE)
    await runner.tick()
    assert await flows.keys(worker_queue(worker.id)) == set()


async def test_a_queue_is_kept_while_an_execution_is_not_final(flows: FlowWorld) -> None:
    """Of seed 003: a queue lives as long as the state that it belongs to."""
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    [running] = await flows.post.sql(
        "INSERT INTO execution (action_ref, status, worker) VALUES ('core.echo', 'running', :worker) RETURNING id",
        worker=worker.id,
    )
    runner = await flows.runner()
    await flows.stop()
    await runner.tick()
    flow = await flows.flow()
    assert (flow.step, worker_queue(worker.id) in await flows.queues()) == (StopStep.DRAINED, True)
    assert "1 execution(s)" in (flow.last_error or "")

    await flows.post.sql("UPDATE execution SET status = 'abandoned' WHERE id = :id", id=running.id)
    await runner.tick()
    assert (await flows.flow()).status is FlowStatus.STOPPED


async def test_contents_are_archived_up_to_a_limit_and_then_counted(flows: FlowWorld) -> None:
    runner = await flows.runner(archive_limit=2)
    await flows.start("eu", "shop", region="eu")
    await runner.tick()
    for _ in range(5):
        await flows.publish("attune.executions", "orders.eu", b"no envelope")
    await flows.stop("eu")
    await runner.tick()
    flow = await flows.flow("eu")
    assert (flow.status, flow.archived, flow.archived_beyond_limit) == (FlowStatus.STOPPED, 2, 3)
    assert [letter.outcome for letter in await flows.post.letters()] == [Outcome.ARCHIVED] * 2


async def test_a_queue_that_cannot_be_deleted_is_listed_and_cleaned_up_later(flows: FlowWorld) -> None:
    """TrustGraph: five attempts, then an error in the log, and the stop completes."""
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    runner = await flows.runner(pause_after="drained")
    await flows.stop()
    await runner.tick()
    packs = f"worker.{worker.id}.packs"
    runner = await flows.runner()
    async with flows.consumer_of(packs):
        for attempt in range(1, 6):
            await runner.tick()
            flow = await flows.flow()
            assert flow.delete_attempts == attempt
            assert flow.next_attempt_at is not None
            assert timedelta(seconds=1) < flow.next_attempt_at - flow.step_since
            await flows.set_flow(next_attempt_at="now()")
        await runner.tick()
        flow = await flows.flow()
        assert (flow.status, flow.leaked) == (FlowStatus.STOPPED, (packs,))
        assert packs in (flow.last_error or "")
        await flows.set_flow(next_attempt_at="now()")
        await runner.tick()
        assert (await flows.flow()).leaked == (packs,)
    await runner.tick()
    assert (await flows.flow()).leaked == ()
    assert packs not in await flows.queues()


async def test_a_missing_queue_does_not_hold_up_a_stop(flows: FlowWorld) -> None:
    """TrustGraph: deletion is idempotent."""
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    for queue in queues_of(worker):
        await flows.delete(queue)
    runner = await flows.runner("one")
    await flows.stop()
    # As the leader that leads already: a new one would make the queues again first.
    await runner.tick()
    assert (await flows.flow()).status is FlowStatus.STOPPED


async def test_the_retired_queue_is_unbound_when_the_row_is_gone(flows: FlowWorld) -> None:
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    runner = await flows.runner()
    await flows.stop()
    await runner.tick()
    await flows.set_flow(since="now() - interval '11 minutes'")
    await runner.tick()
    assert await flows.retired_keys() == own_keys(worker)
    await flows.post.sql("DELETE FROM worker WHERE id = :id", id=worker.id)
    await runner.tick()
    assert await flows.retired_keys() == set()
    assert (await flows.flow()).is_retired_bound is False


async def test_a_stopped_flow_can_be_started_again(flows: FlowWorld) -> None:
    """TrustGraph: stop and restart recreates everything."""
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    runner = await flows.runner()
    await flows.stop()
    await runner.tick()
    before = (await flows.flow()).version
    await flows.start(id=str(worker.id))
    await runner.tick()
    flow = await flows.flow()
    assert (flow.status, flow.version > before) == (FlowStatus.ACTIVE, True)
    assert await flows.keys(worker_queue(worker.id)) == {f"execution.dispatch.worker.{worker.id}"}
    assert await flows.retired_keys() == set()


async def test_stop_of_a_flow_that_is_not_active_is_an_error(flows: FlowWorld) -> None:
    """TrustGraph: stop-flow of an unknown flow fails."""
    with pytest.raises(NoSuchFlow, match="there is no flow 'w7'"):
        await flows.stop()
    await flows.start(id="7")
    with pytest.raises(Impossible, match="is starting"):
        await flows.stop()
    await (await flows.runner()).tick()
    with pytest.raises(Changed):
        await flows.operations.stop(ANN, "w7", version="1")
    await flows.stop()
    with pytest.raises(Impossible, match="is stopping already"):
        await flows.stop()


async def test_a_wish_in_between_is_never_overwritten(flows: FlowWorld) -> None:
    """The leader writes only over the version that it has read."""
    runner = await flows.started()
    seen = await flows.flow()
    await flows.stop()
    with pytest.raises(FlowChanged):
        async with runner._actions._holding(seen):
            pass
    assert (await flows.flow()).status is FlowStatus.STOPPING


async def test_queues_of_a_worker_that_is_gone_are_retired(flows: FlowWorld) -> None:
    worker = await flows.stopped_worker()
    await flows.fleet.dispatch(worker, 2)
    wishes = await flows.operations.retire(ANN, [worker.id], comment="test")
    assert [flow.kind for flow in wishes.flows] == [FlowKind.RETIREMENT]
    again = await flows.operations.retire(ANN, [worker.id])
    assert again.operation_id is None
    assert "being retired already" in again.refused[worker.id]
    runner = await flows.runner()
    await runner.tick()
    flow = await flows.flow(retirement_id(worker.id))
    assert (flow.status, flow.leaked) == (FlowStatus.STOPPED, ())
    assert not queues_of(worker) & await flows.queues()

    # It was not gone for ever.
    await flows.worker()
    await runner.tick()
    flow = await flows.flow(retirement_id(worker.id))
    assert (flow.status, flow.is_retired_bound) == (FlowStatus.STOPPED, False)
    assert "has returned" in (flow.last_error or "")
    assert await flows.cordon(worker.id) == {"cordoned": False, "cordon_reason": None}


async def test_the_retirement_of_a_worker_that_is_back_is_aborted_at_once(flows: FlowWorld) -> None:
    worker = await flows.worker()
    await flows.operations.retire(ANN, [worker.id])
    await (await flows.runner()).tick()
    flow = await flows.flow(retirement_id(worker.id))
    assert (flow.status, flow.has_cordoned) == (FlowStatus.STOPPED, False)
    assert queues_of(worker) <= await flows.queues()
    assert await flows.cordon(worker.id) == {"cordoned": False, "cordon_reason": None}


async def test_queues_of_a_live_flow_are_not_retired(flows: FlowWorld) -> None:
    worker = await flows.stopped_worker()
    await active_flow(flows, worker)
    wishes = await flows.operations.retire(ANN, [worker.id])
    assert (wishes.flows, "belongs to flow 'w7'" in wishes.refused[worker.id]) == ((), True)
