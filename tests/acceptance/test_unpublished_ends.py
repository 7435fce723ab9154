"""Attune's executor loses the broker, and its own timeout monitor goes on ending executions that it cannot publish."""

from contextlib import suppress
from datetime import datetime
from typing import Any

from sandbox.attune import messages
from sandbox.attune.amqp import PublishFailed
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.timeout_monitor import StockTimeoutMonitor
from sandbox.times import STOCK
from tests.support.eventually import eventually
from tests.support.stock_world import StockWorld

COUNTED = 'dlq_handler_reconciled_total{finding="unpublished_end"}'


async def lost(message: messages.StockMessage) -> None:
    raise PublishFailed("invalid channel state: Closed")


async def a_task(world: StockWorld, parent: int, workflow: int, name: str, **task: Any) -> int:
    return await world.executor.create_execution(
        parent=parent,
        workflow_task={"workflow_execution": workflow, "task_name": name, "retry_count": 0, **task},
    )


async def found_without_consumer(world: StockWorld, since: datetime) -> None:
    """The leader has looked at the queue since then, and found no consumer."""

    async def is_recorded() -> bool:
        sql = "SELECT 1 FROM dlq_handler.unconsumed_interval WHERE last_observed_at > $1"
        return bool(await world.sql(sql, since))

    await eventually(is_recorded, timeout=60)


async def scanned_since(world: StockWorld, moment: datetime) -> bool:
    rows = await world.sql("SELECT until FROM dlq_handler.progress WHERE name = 'unpublished ends'")
    return any(row["until"] > moment for row in rows)


async def test_ends_that_attunes_monitor_could_not_publish_are_published_once(world: StockWorld) -> None:
    worker = await world.lost_worker(ttl_ms=STOCK.worker_queue_ttl_ms)
    parent = await world.executor.create_execution("core.workflow")
    [workflow] = await world.sql(
        "INSERT INTO workflow_execution (execution, current_tasks) VALUES ($1, '{build,test}') RETURNING id",
        parent,
    )
    await world.sql("UPDATE execution SET status = 'running' WHERE id = $1", parent)
    build = await a_task(world, parent, workflow["id"], "build")
    test = await a_task(world, parent, workflow["id"], "test", max_retries=1)
    run = await world.executor.create_execution()
    async with world.sidecar(monitor__quiet_seconds="2", monitor__interval_seconds="1") as sidecar:
        await found_without_consumer(world, await world.now())
        [plain] = await world.executor.schedule_many(1, worker.id)
        for task in (build, test):
            await world.executor.schedule(task, worker.id)
        await world.sql("UPDATE execution SET status = 'running', worker = $2 WHERE id = $1", run, worker.id)
        await world.sql("UPDATE worker SET status = 'inactive'")
        monitor = StockTimeoutMonitor(
            world.executor.database,
            lost,
            world.executor.may_still_take,
            times=STOCK,
            scheduled_timeout_seconds=0,
            check_seconds=60,
        )
        ended = {plain.execution_id, build, test, run}
        while set(monitor.ended) != ended:
            with suppress(PublishFailed):
                await monitor.tick()
        await found_without_consumer(world, await world.now())
        assert await world.auditor.completions() == []
        _, story, _ = await sidecar.cli("executions", "explain", str(build))
        assert "execution.completed is not published yet" in story

        async with CompletionListener(world.amqp_url, world.database_url) as listener:
            await eventually(
                lambda: {completion.execution_id for completion in listener.completions} >= ended, timeout=60
            )
            [row] = await world.sql("SELECT failed_tasks FROM workflow_execution")
            assert row["failed_tasks"] == ["build"]
            [retries] = await world.sql(
                "SELECT count(*) AS rows FROM execution WHERE original_execution = $1", test
            )
            assert retries["rows"] == 1

            assert (await sidecar.metrics())[COUNTED] == len(ended)
            # Whichever replica leads next scans once more, and finds nothing.
            await sidecar.terminate()
            stopped_at = await world.now()
            await sidecar.start()
            await eventually(lambda: scanned_since(world, stopped_at), timeout=60)
        assert await world.auditor.completion_counts() == dict.fromkeys(ended, 1)
        assert (await world.auditor.completions())[0].payload["status"] in {"Failed", "Abandoned"}
        _, story, _ = await sidecar.cli("executions", "explain", str(build))
        assert "Attune's timeout monitor ended it" in story
