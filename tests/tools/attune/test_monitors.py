"""The executor's own monitors, and its consumer of status changes."""

import pytest

from sandbox.attune import messages, topology
from sandbox.attune.amqp import PublishFailed
from sandbox.attune.execution_manager import ExecutionManager
from sandbox.attune.executor import StockExecutor
from sandbox.attune.heartbeat_monitor import HeartbeatMonitor
from sandbox.attune.timeout_monitor import StockTimeoutMonitor
from sandbox.attune.worker import StockWorker
from sandbox.times import STOCK
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.tools.attune.until_ready import until_ready


def a_monitor(executor: StockExecutor, publish: messages.Publish | None = None) -> StockTimeoutMonitor:
    return StockTimeoutMonitor(
        executor.database,
        publish or executor.publisher.publish,
        executor.may_still_take,
        times=STOCK,
        scheduled_timeout_seconds=0,
        check_seconds=60,
    )


async def test_a_hundred_stale_executions_per_scan_are_failed_and_published(
    executor: StockExecutor, worker: StockWorker, auditor: Auditor
) -> None:
    dispatches = await executor.schedule_many(101, worker.id)
    monitor = a_monitor(executor)
    await monitor.tick()
    assert len(monitor.ended) == 100
    await monitor.tick()
    assert sorted(monitor.ended) == [dispatch.execution_id for dispatch in dispatches]
    assert await auditor.result(monitor.ended[0]) == {
        "error": "no worker took the execution within 0 seconds",
        "failed_by": "execution_timeout_monitor",
        "timeout_seconds": 0,
        "age_seconds": 0,
        "original_status": "scheduled",
    }
    assert await auditor.completion_counts() == dict.fromkeys(monitor.ended, 1)
    assert {completion.payload["status"] for completion in await auditor.completions()} == {"Failed"}


async def test_an_end_that_cannot_be_published_is_never_published(
    executor: StockExecutor, worker: StockWorker, auditor: Auditor
) -> None:
    """Defect D12, its other half: the row is scheduled no more, so no later look finds it."""

    async def refuse(message: messages.StockMessage) -> None:
        raise PublishFailed("away")

    await executor.schedule_many(2, worker.id)
    with pytest.raises(PublishFailed):
        await a_monitor(executor, refuse).tick()
    assert await auditor.statuses() == {"failed": 1, "scheduled": 1}
    await a_monitor(executor).tick()
    assert await auditor.statuses() == {"failed": 2}
    assert len(await auditor.completions()) == 1


@pytest.mark.parametrize("change", ["status = 'inactive'", "last_heartbeat = now() - interval '91 seconds'"])
async def test_executions_on_an_unavailable_worker_are_abandoned(
    change: str, executor: StockExecutor, worker: StockWorker, auditor: Auditor
) -> None:
    execution_id = await executor.create_execution()
    await executor.database.session.execute(
        "UPDATE execution SET status = 'running', worker = $2 WHERE id = $1", execution_id, worker.id
    )
    monitor = a_monitor(executor)
    await monitor.tick()
    assert monitor.ended == []
    await executor.database.session.execute(f"UPDATE worker SET {change}")
    await monitor.tick()
    assert await auditor.status(execution_id) == "abandoned"
    assert (await auditor.result(execution_id))["abandoned_by"] == "execution_timeout_monitor"
    [completion] = await auditor.completions()
    assert completion.payload["status"] == "Abandoned"


async def test_only_workers_without_a_fresh_heartbeat_become_inactive(
    vhost: str, database: str, executor: StockExecutor, worker: StockWorker
) -> None:
    monitor = HeartbeatMonitor(executor.database, check_seconds=60, unavailable_after_seconds=90)
    async with StockWorker(vhost, database, name="silent") as silent:
        await silent.heartbeat(age_seconds=91)
        await monitor.tick()
    rows = await executor.database.session.fetch("SELECT name, status FROM worker ORDER BY id")
    assert [(row["name"], row["status"]) for row in rows] == [
        ("worker-shell", "active"),
        ("silent", "inactive"),
    ]


async def test_the_manager_takes_status_changes_and_drops_those_it_cannot_place(
    vhost: str, database: str, executor: StockExecutor
) -> None:
    async with ExecutionManager(vhost, database) as manager:
        for execution_id in (await executor.create_execution(), 999):
            await executor.publisher.publish(
                messages.status_changed(
                    execution_id=execution_id,
                    action_ref="core.echo",
                    previous_status="scheduled",
                    new_status="Running",
                )
            )
        await until_ready(vhost, topology.STATUS_QUEUE, 0)
        assert manager.consumer is not None
        failures = manager.consumer.failures
        await eventually(lambda: failures)
    assert [str(failure) for failure in failures] == ["no execution 999"]
