"""Starting flows: what exists afterwards, and what a failure or a crash leaves behind."""

import pytest

from dlq_handler.lifecycle.flow import FlowStatus
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.operations import audit_sql
from dlq_handler.operations.operations import Impossible
from sandbox.attune.topology import verify_redeclare
from tests.integration.lifecycle.flow_world import ANN, FlowWorld, fleet, flows, post

__all__ = ["fleet", "flows", "post"]

QUEUES = {"worker.7.executions", "worker.7.packs", "worker.7.cancel"}


async def test_start_makes_every_queue_as_a_stock_worker_does(flows: FlowWorld, vhost: str) -> None:
    """TrustGraph: start-flow creates the queues before it answers."""
    runner = await flows.runner()
    await flows.start(id="7")
    assert (await flows.flow()).status is FlowStatus.STARTING
    await runner.tick()
    flow = await flows.flow()
    assert (flow.status, flow.last_error, set(flow.made)) == (FlowStatus.ACTIVE, None, QUEUES)
    assert await flows.queues() >= QUEUES
    assert await flows.keys("worker.7.executions") == {"execution.dispatch.worker.7"}
    assert await flows.keys("worker.7.packs", "attune.events") == {"pack.registered", "pack.deleted"}
    assert await flows.keys("worker.7.cancel") == {"execution.cancel.worker.7"}
    await verify_redeclare(vhost, {7: 300_000})


async def test_start_is_in_the_audit(flows: FlowWorld) -> None:
    await flows.started()
    [operation] = await audit_sql.list_operations(flows.post.database)
    assert (operation.action, operation.target, operation.username) == ("flow.start", "flow w7", "ann")


async def test_start_of_a_live_flow_is_an_error(flows: FlowWorld) -> None:
    """TrustGraph: start-flow of an existing flow fails."""
    await flows.start(id="7")
    with pytest.raises(Impossible, match="exists and is starting"):
        await flows.start(id="8")
    await (await flows.runner()).tick()
    with pytest.raises(Impossible, match="exists and is active"):
        await flows.start(id="7")


async def test_no_two_live_flows_have_one_queue(flows: FlowWorld) -> None:
    await flows.started()
    with pytest.raises(Impossible, match=r"queue 'worker\.7\.\w+' belongs to flow 'w7'"):
        await flows.start("other", id="7")


@pytest.mark.parametrize(
    ("flow_id", "blueprint", "params", "problem"),
    [
        ("a b", "worker", {"id": "7"}, "Invalid flow id"),
        ("w7", "wroker", {"id": "7"}, "unknown blueprint 'wroker': must be one of shop, worker"),
        ("w7", "worker", {}, "missing parameter 'id'"),
        ("w7", "worker", {"id": "7", "size": "2"}, "unknown parameter 'size'"),
    ],
)
async def test_a_start_that_cannot_work_writes_nothing(
    flows: FlowWorld, flow_id: str, blueprint: str, params: dict[str, str], problem: str
) -> None:
    with pytest.raises(Impossible, match=problem):
        await flows.start(flow_id, blueprint, **params)
    assert await audit_sql.list_operations(flows.post.database) == []


async def test_without_the_setting_every_wish_is_refused(flows: FlowWorld) -> None:
    off = flows.operations_with(LifecycleOptions())
    for wish in (
        off.start(ANN, "w7", blueprint="worker", params={"id": "7"}),
        off.stop(ANN, "w7"),
        off.retire(ANN, [7]),
    ):
        with pytest.raises(Impossible, match=r"dlq_handler\.lifecycle\.enabled is false"):
            await wish


async def test_a_queue_that_differs_fails_the_start_and_what_it_made_is_deleted(flows: FlowWorld) -> None:
    """TrustGraph's own start leaves what it has made."""
    await flows.declare("worker.7.cancel", x_message_ttl=5)
    runner = await flows.runner()
    await flows.start(id="7")
    await runner.tick()
    flow = await flows.flow()
    assert flow.status is FlowStatus.STOPPED
    assert flow.last_error is not None
    assert "worker.7.cancel" in flow.last_error
    assert "5" in flow.last_error
    assert await flows.queues() & QUEUES == {"worker.7.cancel"}


async def test_a_missing_exchange_fails_the_start(flows: FlowWorld) -> None:
    await flows.post.sql("SELECT 1")
    async with flows.post.admin.channel("delete") as channel:
        await channel.exchange_delete("attune.events")
    runner = await flows.runner()
    await flows.start(id="7")
    await runner.tick()
    flow = await flows.flow()
    assert (flow.status, "'attune.events' does not exist" in (flow.last_error or "")) == (
        FlowStatus.STOPPED,
        True,
    )
    assert not await flows.queues() & QUEUES
    # The same id can be started again.
    await flows.start(id="7")


async def test_a_start_whose_process_ended_is_rolled_back(flows: FlowWorld) -> None:
    """TrustGraph has no recovery of a start."""
    await flows.start(id="7")
    await flows.declare("worker.7.executions")
    await flows.set_flow(last_lease="'a process that was killed'", made="""'["worker.7.executions"]'""")
    runner = await flows.runner()
    await runner.tick()
    flow = await flows.flow()
    assert (flow.status, flow.last_error) == (
        FlowStatus.STOPPED,
        "the process that started it ended before it was active",
    )
    assert "worker.7.executions" not in await flows.queues()


async def test_a_rollback_deletes_no_message(flows: FlowWorld) -> None:
    await flows.start("eu", "shop", region="eu")
    await flows.declare("shop.eu.orders")
    await flows.publish("", "shop.eu.orders")
    await flows.set_flow("eu", last_lease="'a process that was killed'", made="""'["shop.eu.orders"]'""")
    runner = await flows.runner()
    await runner.tick()
    flow = await flows.flow("eu")
    assert (flow.status, flow.leaked) == (FlowStatus.STOPPED, ("shop.eu.orders",))
    assert await flows.ready("shop.eu.orders") == 1

    await flows.set_flow("eu", next_attempt_at="now()")
    await runner.tick()
    assert (await flows.flow("eu")).leaked == ()
    assert "shop.eu.orders" not in await flows.queues()
    assert [letter.outcome for letter in await flows.post.letters()] == ["archived"]


async def test_a_new_leader_makes_the_queues_of_active_flows_again(flows: FlowWorld) -> None:
    """TrustGraph: at its start the service ensures the queues of existing flows."""
    await flows.started()
    await flows.delete("worker.7.executions")
    await flows.unbind("worker.7.cancel", "execution.cancel.worker.7")
    await (await flows.runner("two")).tick()
    assert await flows.queues() >= QUEUES
    assert await flows.keys("worker.7.executions") == {"execution.dispatch.worker.7"}
    assert await flows.keys("worker.7.cancel") == {"execution.cancel.worker.7"}


async def test_only_the_leader_acts(flows: FlowWorld) -> None:
    leader = await flows.runner("one")
    other = await flows.runner("two", takes_lease=False)
    await flows.start(id="7")
    await other.tick()
    assert (await flows.flow()).status is FlowStatus.STARTING
    await leader.tick()
    assert (await flows.flow()).status is FlowStatus.ACTIVE


async def test_a_leader_that_lost_its_lease_changes_nothing(flows: FlowWorld) -> None:
    """It still believes that it leads."""
    late = await flows.runner("one")
    await flows.runner("two")
    await flows.start(id="7")
    with pytest.raises(Exception, match="held by another replica"):
        await late.tick()
    assert not await flows.queues() & QUEUES
    assert (await flows.flow()).last_lease is None


async def test_shared_queues_are_made_once_and_never_deleted(flows: FlowWorld) -> None:
    """TrustGraph: the queues of a blueprint are shared by its flows."""
    runner = await flows.runner()
    await flows.start("eu", "shop", region="eu")
    await flows.start("us", "shop", region="us")
    await runner.tick()
    assert await flows.queues() >= {"shop.log", "shop.eu.orders", "shop.us.orders"}
    for flow_id in ("eu", "us"):
        await flows.stop(flow_id)
    await runner.tick()
    assert {(await flows.flow(one)).status for one in ("eu", "us")} == {FlowStatus.STOPPED}
    found = await flows.queues()
    assert "shop.log" in found
    assert not found & {"shop.eu.orders", "shop.us.orders"}


async def test_a_flow_that_is_started_again_ends_the_cordon_of_its_stop(flows: FlowWorld) -> None:
    """Its worker may wait for the queues, and not be active before: no return would end the cordon."""
    worker = await flows.stopped_worker()
    runner = await flows.started(worker_id=worker.id)
    await flows.stop()
    await runner.tick()
    assert (await flows.flow()).status is FlowStatus.STOPPED
    assert (await flows.cordon(worker.id))["cordoned"]
    await flows.start(id=str(worker.id))
    await runner.tick()
    flow = await flows.flow()
    assert (flow.status, flow.has_cordoned) == (FlowStatus.ACTIVE, False)
    assert not (await flows.cordon(worker.id))["cordoned"]


async def test_a_start_leaves_the_cordon_of_another_alone(flows: FlowWorld) -> None:
    worker = await flows.stopped_worker()
    await flows.post.sql(
        "UPDATE worker SET cordoned = true, cordon_reason = 'disk' WHERE id = :id", id=worker.id
    )
    runner = await flows.started(worker_id=worker.id)
    await flows.stop()
    await runner.tick()
    await flows.start(id=str(worker.id))
    await runner.tick()
    assert (await flows.flow()).status is FlowStatus.ACTIVE
    assert await flows.cordon(worker.id) == {"cordoned": True, "cordon_reason": "disk"}
