"""Scheduling, admission and the line, as the executor does them."""

import json

import pytest

from sandbox.attune import admission, topology
from sandbox.attune.amqp import open_connection
from sandbox.attune.executor import NotSchedulable, StockExecutor
from sandbox.attune.worker import StockWorker
from tests.support.auditor import Auditor


async def test_scheduling_sets_the_worker_and_stamps_the_dispatch_to_the_microsecond(
    vhost: str, executor: StockExecutor, worker: StockWorker
) -> None:
    execution_id = await executor.create_execution(config={"message": "hello"})
    await executor.schedule(execution_id, worker.id)

    connection = await open_connection(vhost)
    async with connection:
        queue = await (await connection.channel()).get_queue(topology.worker_queue(worker.id))
        message = await queue.get(no_ack=True)
    assert message is not None
    payload = json.loads(message.body)["payload"]
    # The database itself compares the text of the message with its row: no Python clock in between.
    row = await executor.database.session.fetchrow(
        """SELECT status, worker, config, updated = $2::text::timestamptz AS stamped
             FROM execution WHERE id = $1""",
        execution_id,
        payload["scheduled_attempt_updated_at"],
    )
    assert row is not None
    assert (row["status"], row["worker"], row["stamped"]) == ("scheduled", worker.id, True)
    assert payload["config"] == row["config"] == {"message": "hello"}


async def test_an_execution_is_scheduled_only_once(executor: StockExecutor, worker: StockWorker) -> None:
    execution_id = await executor.create_execution()
    await executor.schedule(execution_id, worker.id)
    with pytest.raises(NotSchedulable):
        await executor.schedule(execution_id, worker.id)


async def test_a_scheduled_row_is_dispatched_again_with_its_present_stamp(
    executor: StockExecutor, worker: StockWorker
) -> None:
    first = await executor.schedule(await executor.create_execution(), worker.id)
    await executor.database.session.execute("UPDATE execution SET env_vars = '{}'")
    second = await executor.dispatch(first.execution_id)
    assert second.scheduled_at > first.scheduled_at
    assert second.scheduled_at == await executor.database.session.fetchval("SELECT updated FROM execution")


@pytest.mark.parametrize("straight", [False, True])
async def test_many_executions_are_scheduled_and_all_dispatched(
    vhost: str, executor: StockExecutor, worker: StockWorker, auditor: Auditor, straight: bool
) -> None:
    dispatches = await executor.schedule_many(2500, worker.id, straight=straight)
    assert len({dispatch.execution_id for dispatch in dispatches}) == 2500
    assert len({dispatch.message.message_id for dispatch in dispatches}) == 2500
    assert await auditor.statuses() == {"scheduled": 2500}
    assert await topology.ready_count(vhost, topology.worker_queue(worker.id)) == 2500


@pytest.mark.usefixtures("admission_works")
async def test_a_limit_admits_so_many_and_lets_the_rest_wait_in_order(
    executor: StockExecutor, auditor: Auditor
) -> None:
    await executor.ensure_action("core.slow", concurrency_limit=2)
    ids = [await executor.create_execution("core.slow") for _ in range(4)]
    assert [await executor.admit(one) for one in ids] == [True, True, False, False]
    assert await auditor.line("core.slow") == list(
        zip(ids, ["active", "active", "queued", "queued"], strict=True)
    )
    assert await _stats(executor) == (2, 2, 4, 0)


@pytest.mark.usefixtures("admission_works")
async def test_an_execution_that_holds_a_slot_keeps_it_when_admitted_again(executor: StockExecutor) -> None:
    await executor.ensure_action("core.slow", concurrency_limit=1)
    execution_id = await executor.create_execution("core.slow")
    assert await executor.admit(execution_id)
    assert await executor.admit(execution_id)
    assert await _stats(executor) == (0, 1, 1, 0)


async def test_without_a_limit_no_execution_waits(executor: StockExecutor, auditor: Auditor) -> None:
    await executor.ensure_action("core.echo")
    assert await executor.admit(await executor.create_execution("core.echo"))
    assert await auditor.line("core.echo") == []


@pytest.mark.usefixtures("admission_works")
async def test_a_release_promotes_the_head_of_the_line_and_repeats_harmlessly(
    executor: StockExecutor, auditor: Auditor
) -> None:
    await executor.ensure_action("core.slow", concurrency_limit=1)
    ids = [await executor.create_execution("core.slow") for _ in range(3)]
    for one in ids:
        await executor.admit(one)
    async with executor.database.transaction() as session:
        released = await admission.release(session, ids[0])
    async with executor.database.transaction() as session:
        again = await admission.release(session, ids[0])
    assert released is not None
    assert (released.promoted, again) == (ids[1], None)
    assert await auditor.line("core.slow") == [(ids[1], "active"), (ids[2], "queued")]
    assert await _stats(executor) == (1, 1, 3, 1)


@pytest.mark.usefixtures("admission_works")
async def test_a_release_of_one_who_waits_changes_nothing(executor: StockExecutor, auditor: Auditor) -> None:
    await executor.ensure_action("core.slow", concurrency_limit=1)
    holder, waiting = [await executor.create_execution("core.slow") for _ in range(2)]
    for one in (holder, waiting):
        await executor.admit(one)
    async with executor.database.transaction() as session:
        assert await admission.release(session, waiting) is None
    assert await auditor.line("core.slow") == [(holder, "active"), (waiting, "queued")]


@pytest.mark.usefixtures("admission_works")
async def test_a_restored_release_leaves_the_line_as_it_was(
    executor: StockExecutor, auditor: Auditor
) -> None:
    await executor.ensure_action("core.slow", concurrency_limit=1)
    ids = [await executor.create_execution("core.slow") for _ in range(2)]
    for one in ids:
        await executor.admit(one)
    before = (await auditor.line("core.slow"), await _stats(executor))
    async with executor.database.transaction() as session:
        released = await admission.release(session, ids[0])
        assert released is not None
        await admission.restore(session, ids[0], released)
    assert (await auditor.line("core.slow"), await _stats(executor)) == before


async def _stats(executor: StockExecutor) -> tuple[int, int, int, int]:
    row = await executor.database.session.fetchrow("SELECT * FROM queue_stats")
    assert row is not None
    return row["queue_length"], row["active_count"], row["total_enqueued"], row["total_completed"]
