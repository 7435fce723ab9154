"""The journeys the product exists for: dispatches to workers that are gone end, are announced, and are on record."""

import pytest

from sandbox.attune import topology
from sandbox.attune.completion_listener import CompletionListener
from tests.support.eventually import eventually
from tests.support.journey import World
from tests.support.sidecar import sidecar_process


async def test_executions_of_a_vanished_worker_are_failed_announced_and_recorded(world: World) -> None:
    worker = await world.vanished_worker()
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        dispatched = await world.executor.schedule_many(20, worker.id)
        await world.all_ended(dispatched)

        result = await world.auditor.result(dispatched[0].execution_id)
        assert result["error"] == "Worker queue TTL expired"
        assert result["message"]
        assert result["expired_at"] == result["died_at"]
        assert result["queue"] == topology.worker_queue(worker.id)
        assert (result["failed_by"], result["reason"], result["worker_id"]) == (
            "dlq_handler",
            "expired",
            worker.id,
        )
        assert result["attempt"] == dispatched[0].scheduled_at.isoformat()

        letters = await sidecar.cli_json("letters", "list", "--outcome", "failed", "--limit", "100")
        assert {letter["execution_id"] for letter in letters} == {one.execution_id for one in dispatched}
        assert {letter["message_id"] for letter in letters} == {one.message.message_id for one in dispatched}
        for letter in letters:
            assert letter["queue"] == topology.worker_queue(worker.id)
            assert (letter["reason"], letter["outcome"]) == ("expired", "failed")
            assert letter["died_at"].endswith("Z")
            assert letter["received_at"].endswith("Z")
        metrics = await sidecar.metrics()
        assert metrics['dlq_handler_dead_letters_total{outcome="failed",reason="expired"}'] == 20
        assert metrics["dlq_handler_decision_latency_seconds_count"] == 20
        assert metrics['dlq_handler_notices_total{outcome="confirmed"}'] == 20
        assert await sidecar.terminate() == 0


async def test_notice_is_what_attunes_own_services_send(world: World) -> None:
    worker = await world.vanished_worker()
    action_id = await world.executor.ensure_action("core.echo")
    async with sidecar_process(world.folder, world.amqp_url, world.database_url):
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        await world.all_ended([dispatch])
    [notice] = await world.auditor.notices()
    assert notice.correlation_id == dispatch.message.correlation_id
    assert notice.payload["action_id"] == action_id
    assert notice.payload["action_ref"] == "core.echo"
    assert notice.payload["status"] == "Failed"
    assert notice.payload["result"] == await world.auditor.result(dispatch.execution_id)
    assert notice.payload["completed_at"].endswith("Z")


async def test_history_audit_and_notification_follow_from_attunes_triggers(world: World) -> None:
    worker = await world.vanished_worker()
    async with sidecar_process(world.folder, world.amqp_url, world.database_url):
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        before = len(await world.auditor.history(dispatch.execution_id))
        await world.all_ended([dispatch])
    assert len(await world.auditor.history(dispatch.execution_id)) == before + 1
    assert ("execution.failed", "failure") in await world.auditor.audit_trail(dispatch.execution_id)


@pytest.mark.usefixtures("admission_works")
async def test_freed_slot_lets_the_line_move(world: World) -> None:
    """The harm of an end that nobody hears of: whoever waits behind it waits for ever."""
    worker = await world.vanished_worker()
    await world.executor.ensure_action("core.slow", concurrency_limit=1)
    first = await world.executor.create_execution("core.slow")
    second = await world.executor.create_execution("core.slow")
    assert await world.executor.admit(first)
    assert not await world.executor.admit(second)
    async with (
        CompletionListener(world.amqp_url, world.database_url) as listener,
        sidecar_process(world.folder, world.amqp_url, world.database_url),
    ):
        await world.executor.schedule(first, worker.id)
        await eventually(lambda: listener.promoted == [second])


async def test_worker_that_registers_later_is_covered_without_restart(world: World) -> None:
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        worker = await world.vanished_worker("late")

        async def bound() -> bool:
            return (await sidecar.metrics())["dlq_handler_bound_workers"] == 1

        await eventually(bound)
        dispatched = await world.executor.schedule_many(5, worker.id)
        await world.all_ended(dispatched)


async def test_attunes_own_declares_succeed_after_us(world: World) -> None:
    worker = await world.vanished_worker()
    async with sidecar_process(world.folder, world.amqp_url, world.database_url):
        await topology.verify_redeclare(world.amqp_url, {worker.id: 500})


async def test_two_replicas_share_the_letters_and_announce_each_end_once(world: World) -> None:
    worker = await world.vanished_worker()
    async with (
        sidecar_process(
            world.folder, world.amqp_url, world.database_url, name="one", batch__size="10"
        ) as one,
        sidecar_process(
            world.folder, world.amqp_url, world.database_url, name="two", batch__size="10"
        ) as two,
    ):
        dispatched = await world.executor.schedule_many(400, worker.id)
        await world.all_ended(dispatched)
        name = 'dlq_handler_dead_letters_total{outcome="failed",reason="expired"}'
        shares = [(await replica.metrics())[name] for replica in (one, two)]
        assert sum(shares) == 400
        assert min(shares) > 0
