"""A late worker brings back what a letter had failed: seen, counted, explained, and left in peace."""

import asyncio
from typing import Any

from sandbox.attune.worker import StockWorker
from tests.support.eventually import eventually
from tests.support.stock_world import StockWorld

COUNTED = 'dlq_handler_reconciled_total{finding="reverted_by_worker"}'


async def test_late_worker_finishes_what_a_letter_had_failed(world: StockWorld) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: dict[str, Any]) -> object:
        begun.set()
        await go_on.wait()
        return {"exit_code": 0}

    lost = await world.lost_worker("late")
    async with world.sidecar(
        monitor__reconcile_interval_seconds="1",
        monitor__confirm_after_seconds="1",
        monitor__interval_seconds="1",
    ) as sidecar:
        [dispatch] = await world.executor.schedule_many(1, lost.id)
        number = dispatch.execution_id
        await world.all_ended([dispatch])
        async with StockWorker(
            world.amqp_url, world.database_url, name="late", ttl_ms=500, run_action=slow, heartbeat_seconds=1
        ) as late:
            assert late.id == lost.id
            await late.consume()
            # It had the message all along, as a worker that hung with it would.
            await world.executor.publisher.publish(dispatch.message)
            await begun.wait()

            async def noticed() -> bool:
                return (await sidecar.metrics())[COUNTED] == 1

            await eventually(noticed)
            deleted = (await sidecar.metrics())["dlq_handler_scan_seconds_count"]

            async def deleted_again() -> bool:
                return (await sidecar.metrics())["dlq_handler_scan_seconds_count"] >= deleted + 3

            await eventually(deleted_again)
            assert await world.auditor.status(number) == "running"
            story = await sidecar.cli_json("executions", "explain", str(number))
            [back] = [moment for moment in story["moments"] if moment["kind"] == "reverted_by_worker"]
            assert back["evidence"]["worker"] == late.id
            assert story["waiting"]["explanation"].startswith(f"it runs; worker {late.id} reported")
            [listed] = await sidecar.cli_json("workers", "list")
            assert listed["reverted_by_worker"] == 1
            go_on.set()
            await eventually(lambda: late.ran == [number])
        assert await world.auditor.status(number) == "completed"
        [event] = sidecar.events("execution.reverted_by_worker")
        assert event["execution_id"] == number
        assert await sidecar.terminate() == 0
        assert (await sidecar.cli_json("executions", "explain", str(number)))["moments"][-1]["kind"] in {
            "ended",
            "reverted_by_worker",
        }
