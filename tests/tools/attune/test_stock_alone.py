"""Cases of docs/explanation/stock-attune.md: what stock Attune does alone, and what it does beside dlq-handler."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from sandbox.attune import topology
from sandbox.attune.api.process import Api
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.timeout_monitor import StockTimeoutMonitor
from sandbox.attune.worker import StockWorker
from sandbox.times import SCALED, STOCK, sidecar_environment
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.stock_world import StockWorld
from tests.tools.attune.test_observed_defects import cancel

alone_and_beside = pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside"])


def attunes_monitor(world: StockWorld) -> StockTimeoutMonitor:
    """With no patience at all: a test calls its looks, and every `scheduled` execution is old enough for it."""
    executor = world.executor
    return StockTimeoutMonitor(
        executor.database,
        executor.publisher.publish,
        executor.may_still_take,
        times=SCALED,
        scheduled_timeout_seconds=0,
        check_seconds=60,
    )


@asynccontextmanager
async def dlq_handler(
    world: StockWorld, *, is_alone: bool, **settings: str
) -> AsyncIterator[SidecarProcess | None]:
    """None: Attune is alone."""
    async with AsyncExitStack() as beside:
        sidecar = None
        if not is_alone:
            times = sidecar_environment(SCALED) | settings
            sidecar = await beside.enter_async_context(world.sidecar(start=True, **times))
        yield sidecar


async def has_status(world: StockWorld, execution_id: int, *statuses: str) -> None:
    async def has() -> bool:
        return await world.auditor.status(execution_id) in statuses

    await eventually(has, timeout=60)


@alone_and_beside
async def test_plain_case_and_monitor_off(world: StockWorld, is_alone: bool) -> None:
    lost = await world.lost_worker()
    async with dlq_handler(world, is_alone=is_alone):
        [dispatch] = await world.executor.schedule_many(1, lost.id)
        if is_alone:
            # Its message expires and reaches no queue: without a look of Attune's monitor nothing ends it.
            await has_expired(world, lost)
            assert await world.auditor.status(dispatch.execution_id) == "scheduled"
            await attunes_monitor(world).tick()
        await world.all_ended([dispatch])
    result = await world.auditor.result(dispatch.execution_id)
    assert result["failed_by"] == ("execution_timeout_monitor" if is_alone else "dlq_handler")


async def has_expired(world: StockWorld, worker: StockWorker) -> None:
    async def is_empty() -> bool:
        return await topology.ready_count(world.amqp_url, topology.worker_queue(worker.id)) == 0

    await eventually(is_empty)


@alone_and_beside
async def test_bad_row(world: StockWorld, is_alone: bool) -> None:
    """One row that the database does not let end, and an execution behind it in the order of Attune's scan."""
    lost = await world.lost_worker()
    async with dlq_handler(world, is_alone=is_alone):
        [bad] = await world.executor.schedule_many(1, lost.id)
        await world.sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$"
        )
        await world.sql(
            "CREATE TRIGGER refuse BEFORE UPDATE ON execution FOR EACH ROW"
            f" WHEN (OLD.id = {bad.execution_id}) EXECUTE FUNCTION refuse()"
        )
        [behind] = await world.executor.schedule_many(1, lost.id)
        monitor = attunes_monitor(world)
        for _ in range(2):
            with pytest.raises(asyncpg.RaiseError, match="refused"):
                await monitor.tick()
        if is_alone:
            assert monitor.ended == []
            assert await world.auditor.status(behind.execution_id) == "scheduled"
        else:
            await world.all_ended([behind])
        assert await world.auditor.status(bad.execution_id) == "scheduled"


@alone_and_beside
async def test_lost_request(world: StockWorld, is_alone: bool) -> None:
    async with (
        Scheduler(world.amqp_url, world.database_url) as scheduler,
        StockWorker(world.amqp_url, world.database_url, heartbeat_seconds=1) as worker,
        dlq_handler(world, is_alone=is_alone),
    ):
        await worker.consume()
        await world.sql("UPDATE worker SET status = 'inactive'")
        number = await world.executor.create_execution()
        await world.executor.request(number)
        assert scheduler.consumer is not None
        failures = scheduler.consumer.failures
        await eventually(lambda: failures)
        await world.sql("UPDATE worker SET status = 'active'")
        if is_alone:
            await attunes_monitor(world).tick()
            # A later request is scheduled and run; this one is known to no queue any more.
            later = await world.executor.create_execution()
            await world.executor.request(later)
            await has_status(world, later, "completed")
            assert await world.auditor.status(number) == "requested"
        else:
            await has_status(world, number, "completed")


@alone_and_beside
@pytest.mark.usefixtures("admission_works")
async def test_cancelled(world: StockWorld, is_alone: bool) -> None:
    """One slot, held by an execution on a lost worker. It is cancelled, and so is the next in line: the third waits."""
    lost = await world.lost_worker(ttl_ms=STOCK.worker_queue_ttl_ms)
    await world.executor.ensure_action("core.slow", concurrency_limit=1)
    holder, in_line, last = [await world.executor.create_execution("core.slow") for _ in range(3)]
    for one in (holder, in_line, last):
        await world.executor.admit(one)
    await world.executor.schedule(holder, lost.id)
    async with (
        Api(world.amqp_url, world.database_url) as link,
        CompletionListener(world.amqp_url, world.database_url) as listener,
        dlq_handler(world, is_alone=is_alone, ATTUNE__DLQ_HANDLER__MONITOR__HELD_SLOT_SECONDS="1"),
    ):
        for one in (holder, in_line):
            assert (await cancel(link, one))["status"] == "cancelled"
        if is_alone:
            monitor = attunes_monitor(world)
            await monitor.tick()
            assert monitor.ended == []
            line = [(holder, "active"), (in_line, "queued"), (last, "queued")]
        else:
            await eventually(lambda: listener.promoted == [in_line, last], timeout=60)
            line = [(last, "active")]
        assert await world.auditor.line("core.slow") == line


@alone_and_beside
async def test_canceling(world: StockWorld, is_alone: bool) -> None:
    lost = await world.lost_worker()
    [dispatch] = await world.executor.schedule_many(1, lost.id)
    number = dispatch.execution_id
    await world.sql("UPDATE execution SET status = 'canceling' WHERE id = $1", number)
    await stopped_reporting(world, lost)
    async with dlq_handler(
        world, is_alone=is_alone, ATTUNE__DLQ_HANDLER__MONITOR__CANCELING_TIMEOUT_SECONDS="1"
    ):
        if is_alone:
            await attunes_monitor(world).tick()
            assert await world.auditor.status(number) == "canceling"
        else:
            await world.all_ended([dispatch], "cancelled")


async def stopped_reporting(world: StockWorld, worker: StockWorker) -> None:
    """Its last heartbeat is old."""
    await world.sql("UPDATE worker SET last_heartbeat = now() - interval '1 hour' WHERE id = $1", worker.id)


async def test_restarted_worker(world: StockWorld) -> None:
    """Alone. Beside dlq-handler: test_restarted_worker.py."""
    crashed = await world.lost_worker("worker-shell")
    number = await world.executor.create_execution()
    await world.sql("UPDATE execution SET status = 'running', worker = $2 WHERE id = $1", number, crashed.id)
    await stopped_reporting(world, crashed)
    async with StockWorker(
        world.amqp_url, world.database_url, name="worker-shell", ttl_ms=500, heartbeat_seconds=1
    ) as worker:
        await worker.consume()
        assert worker.id == crashed.id
        # Attune's monitor goes by the heartbeat, and that of the new process is fresh.
        await attunes_monitor(world).tick()
        assert await world.auditor.status(number) == "running"


@alone_and_beside
async def test_held_dispatch(world: StockWorld, is_alone: bool) -> None:
    """A busy worker has taken a dispatch and not begun it."""
    go_on = asyncio.Event()

    async def slow(_: dict[str, Any]) -> object:
        await go_on.wait()
        return {"exit_code": 0}

    async with (
        StockWorker(
            world.amqp_url,
            world.database_url,
            ttl_ms=500,
            max_concurrent_tasks=1,
            heartbeat_seconds=1,
            run_action=slow,
        ) as busy,
        CompletionListener(world.amqp_url, world.database_url),
        dlq_handler(
            world,
            is_alone=is_alone,
            ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT="1",
            # A busy machine may delay the heartbeats of this process by seconds.
            worker__unavailable_after_seconds="15",
        ) as sidecar,
    ):
        await busy.consume()
        first, held = await world.executor.schedule_many(2, busy.id)
        await has_status(world, first.execution_id, "running")
        await eventually(lambda: len(busy.held) == 1)
        if sidecar is None:
            await attunes_monitor(world).tick()
            assert await world.auditor.status(held.execution_id) == "failed"
        else:
            await scanned_past_the_deadline(world, sidecar, held.execution_id)
            assert await world.auditor.status(held.execution_id) == "scheduled"
        go_on.set()
        await has_status(world, held.execution_id, "completed")
        changes = [change.new_values for change in await world.auditor.history(held.execution_id)]
        ends = [one["status"] for one in changes if one and one.get("status") in {"failed", "completed"}]
        assert ends == (["failed", "completed"] if is_alone else ["completed"])


async def scanned_past_the_deadline(world: StockWorld, sidecar: SidecarProcess, execution_id: int) -> None:
    """The timeout monitor of dlq-handler has scanned twice since the execution was old enough to be ended."""
    deadline = SCALED.worker_queue_ttl_ms / 1000 + SCALED.grace_seconds

    async def is_past() -> bool:
        [row] = await world.sql(
            "SELECT updated < now() - make_interval(secs => $2) AS past FROM execution WHERE id = $1",
            execution_id,
            deadline,
        )
        return bool(row["past"])

    async def scans() -> float:
        return (await sidecar.metrics()).get("dlq_handler_scan_seconds_count", 0.0)

    await eventually(is_past, timeout=60)
    before = await scans()

    async def has_scanned() -> bool:
        # One may have begun before the deadline.
        return await scans() >= before + 3

    await eventually(has_scanned, timeout=60)
