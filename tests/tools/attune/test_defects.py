"""Each defect of stock Attune that the reference has: there by default, absent when cured."""

import asyncio
from dataclasses import replace
from typing import Any, Unpack

import pytest

from sandbox.attune import messages, topology
from sandbox.attune.amqp import Publisher, open_connection
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.dead_letter_handler import StockDeadLetterHandler
from sandbox.attune.defects import Cured, Defect
from sandbox.attune.executor import Dispatch, StockExecutor
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.service import Wiring
from sandbox.attune.timeout_monitor import StockTimeoutMonitor
from sandbox.attune.worker import StockWorker
from sandbox.times import SCALED
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.tools.attune.until_ready import until_ready

TTL_MS = 300

here_and_cured = pytest.mark.parametrize("is_cured", [False, True], ids=["as stock", "cured"])


def cured(defect: Defect, is_cured: bool) -> Cured:
    return frozenset({defect} if is_cured else set())


@here_and_cured
async def test_d1_a_message_that_expires_becomes_a_letter(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor
) -> None:
    worker = StockWorker(vhost, database, ttl_ms=TTL_MS, cured=cured(Defect.D1, is_cured))
    await worker.start()
    await worker.die()
    await executor.schedule(await executor.create_execution(), worker.id)
    await until_ready(vhost, topology.worker_queue(worker.id), 0)
    await until_ready(vhost, topology.DLX_QUEUE, 1 if is_cured else 0)


@here_and_cured
async def test_d2_the_dead_letter_handler_publishes_the_end(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor, auditor: Auditor
) -> None:
    dispatch = await a_dispatch(executor)
    async with StockDeadLetterHandler(vhost, database, cured=cured(Defect.D2, is_cured)) as handler:
        await bury(vhost, dispatch)
        await eventually(lambda: handler.failed == [dispatch.execution_id])
        await until_ready(vhost, auditor.queue, 1 if is_cured else 0)
    statuses = [completion.payload["status"] for completion in await auditor.completions()]
    assert statuses == (["Failed"] if is_cured else [])


@here_and_cured
async def test_d5_a_database_error_keeps_the_message(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor
) -> None:
    dispatch = await a_dispatch(executor)
    async with StockDeadLetterHandler(vhost, database, cured=cured(Defect.D5, is_cured)) as handler:
        await executor.database.session.execute("ALTER TABLE execution RENAME TO hidden")
        await bury(vhost, dispatch)
        assert handler.consumer is not None
        failures = handler.consumer.failures
        await eventually(lambda: failures)
    # Its connection is closed: what was not settled is back in the queue.
    await until_ready(vhost, topology.DLX_QUEUE, 1 if is_cured else 0)


@here_and_cured
async def test_d6_a_request_waits_for_a_worker(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor, auditor: Auditor
) -> None:
    async with (
        StockWorker(vhost, database) as worker,
        Scheduler(vhost, database, cured=cured(Defect.D6, is_cured)) as scheduler,
    ):
        await set_worker(executor, worker, "inactive")
        execution_id = await executor.create_execution()
        await executor.request(execution_id)
        assert scheduler.consumer is not None
        failures = scheduler.consumer.failures
        await eventually(lambda: failures)
        assert await auditor.status(execution_id) == "requested"
        await set_worker(executor, worker, "active")
        if is_cured:
            await eventually(lambda: scheduler.dispatched == [execution_id])
    # Nothing is left that could bring it to a worker, unless it was brought there.
    await until_ready(vhost, topology.REQUESTS_QUEUE, 0)
    assert await auditor.status(execution_id) == ("scheduled" if is_cured else "requested")


@here_and_cured
async def test_d8_an_execution_that_ended_is_not_brought_back(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor, auditor: Auditor
) -> None:
    async with StockWorker(vhost, database, cured=cured(Defect.D8, is_cured)) as worker:
        late = await executor.schedule(await executor.create_execution(), worker.id)
        in_time = await executor.schedule(await executor.create_execution(), worker.id)
        await set_status(executor, late.execution_id, "failed")
        before = await auditor.terminal_rows()
        await worker.consume()
        await eventually(lambda: in_time.execution_id in worker.ran)
        await until_ready(vhost, topology.worker_queue(worker.id), 0)
        assert (late.execution_id in worker.ran) is not is_cured
    assert await auditor.changed_terminal_rows(before) == ([] if is_cured else [late.execution_id])


async def test_d8_cured_a_worker_that_lost_its_execution_writes_no_end(
    vhost: str, database: str, executor: StockExecutor, auditor: Auditor
) -> None:
    go_on = asyncio.Event()

    async def wait(_: dict[str, Any]) -> object:
        await go_on.wait()
        return {}

    async with StockWorker(vhost, database, run_action=wait, cured=frozenset({Defect.D8})) as worker:
        await worker.consume()
        dispatch = await executor.schedule(await executor.create_execution(), worker.id)

        async def is_running() -> bool:
            return await auditor.status(dispatch.execution_id) == "running"

        await eventually(is_running)
        await set_status(executor, dispatch.execution_id, "abandoned")
        before = await auditor.terminal_rows()
        go_on.set()
        other = await executor.schedule(await executor.create_execution(), worker.id)
        await eventually(lambda: worker.ran == [other.execution_id])
    assert await auditor.changed_terminal_rows(before) == []
    assert set(await auditor.completion_counts()) == {other.execution_id}


@here_and_cured
async def test_d9_a_crash_while_it_works_gives_the_dispatch_back(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor
) -> None:
    begun = asyncio.Event()

    async def work_for_ever(_: dict[str, Any]) -> object:
        begun.set()
        return await asyncio.Event().wait()

    worker = StockWorker(vhost, database, run_action=work_for_ever, cured=cured(Defect.D9, is_cured))
    await worker.start()
    await worker.consume()
    await executor.schedule(await executor.create_execution(), worker.id)
    await begun.wait()
    await worker.die()
    await until_ready(vhost, topology.worker_queue(worker.id), 1 if is_cured else 0)


async def test_d9_cured_what_is_done_is_acknowledged(
    vhost: str, database: str, executor: StockExecutor
) -> None:
    worker = StockWorker(vhost, database, cured=frozenset({Defect.D9}))
    async with worker:
        await worker.consume()
        dispatch = await executor.schedule(await executor.create_execution(), worker.id)
        await eventually(lambda: worker.ran == [dispatch.execution_id])
        await eventually(lambda: not worker._unacked)
    await until_ready(vhost, topology.worker_queue(worker.id), 0)


@here_and_cured
async def test_d10_a_worker_that_reports_again_is_active_again(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor
) -> None:
    async with StockWorker(
        vhost, database, heartbeat_seconds=0.05, cured=cured(Defect.D10, is_cured)
    ) as worker:
        await set_worker(executor, worker, "inactive")
        session = executor.database.session
        for _ in range(2):  # when the second one is there, all that belongs to the first is done
            since = await session.fetchval("SELECT now()")

            async def has_reported(since: Any = since) -> Any:
                return await session.fetchval("SELECT id FROM worker WHERE last_heartbeat > $1", since)

            await eventually(has_reported)
        await worker.stop_beating()
        status = await session.fetchval("SELECT status FROM worker WHERE id = $1", worker.id)
    assert status == ("active" if is_cured else "inactive")


@here_and_cured
@pytest.mark.parametrize("where", ["waits in the queue", "in the hands of a worker"])
async def test_d12_an_execution_whose_message_can_still_be_run_is_not_failed(
    where: str, is_cured: bool, executor: StockExecutor, worker: StockWorker, auditor: Auditor
) -> None:
    """With the times of the sandbox: what a worker took and sits on outlives its TTL and every timeout."""
    if where == "in the hands of a worker":
        await worker.hang()
    dispatch = await executor.schedule(await executor.create_execution(), worker.id)
    await eventually(lambda: len(worker.held) == (where == "in the hands of a worker"))
    await let_time_pass(executor, SCALED.scheduled_timeout_seconds + 1)
    monitor = a_monitor(executor, cured(Defect.D12, is_cured))
    await monitor.tick()
    assert monitor.ended == ([] if is_cured else [dispatch.execution_id])
    assert await auditor.status(dispatch.execution_id) == ("scheduled" if is_cured else "failed")


@pytest.mark.parametrize("is_queue_there", [True, False], ids=["its queue is empty", "it has no queue"])
async def test_d12_cured_executions_without_a_worker_are_failed_all_the_same(
    is_queue_there: bool, vhost: str, database: str, executor: StockExecutor
) -> None:
    dispatch = await a_dispatch(executor)
    if is_queue_there:
        worker = StockWorker(vhost, database, name="gone")
        await worker.start()
        await worker.die()
    await let_time_pass(executor, SCALED.scheduled_timeout_seconds + 1)
    monitor = a_monitor(executor, frozenset({Defect.D12}))
    await monitor.tick()
    assert monitor.ended == [dispatch.execution_id]


class HeldUp(CompletionListener):
    """Waits until the test lets it go on, instead of the delay of a retry."""

    def __init__(self, amqp_url: str, database_url: str, **wiring: Unpack[Wiring]) -> None:
        super().__init__(amqp_url, database_url, **wiring)
        self.delays: list[float] = []
        self.may_go_on = asyncio.Event()

    async def _hold_up(self, seconds: float) -> None:
        self.delays.append(seconds)
        await self.may_go_on.wait()


@here_and_cured
@pytest.mark.usefixtures("admission_works")
async def test_d13_a_retried_task_keeps_its_slot_and_its_delay_holds_up_other_events(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor, auditor: Auditor
) -> None:
    """§7, D13: "workflow retry returns before slot release (slot leak)", "sleeps the retry delay inside the consumer
    (blocks completions)".
    """
    await executor.ensure_action("core.slow", concurrency_limit=1)
    session = executor.database.session
    parent, plain = await executor.create_execution("core.flow"), await executor.create_execution()
    graph = {"nodes": {"build": {"retry": {"count": 1, "delay": 120}}}}
    workflow = await session.fetchval(
        "INSERT INTO workflow_execution (execution, task_graph) VALUES ($1, $2) RETURNING id", parent, graph
    )
    metadata = {"workflow_execution": workflow, "task_name": "build", "retry_count": 0, "max_retries": 1}
    task = await executor.create_execution("core.slow", parent=parent, workflow_task=metadata)
    await executor.admit(task)
    retries = "SELECT count(*) FROM execution WHERE original_execution = $1"
    async with HeldUp(vhost, database, cured=cured(Defect.D13, is_cured)) as listener:
        for one in (task, plain):
            await set_status(executor, one, "failed")
            await executor.publish(
                messages.execution_completed(execution_id=one, action_ref="core.slow", status="failed")
            )
        if not is_cured:
            await eventually(lambda: listener.delays == [120])
            await until_ready(vhost, topology.COMPLETED_QUEUE, 0)
            assert listener.completions == []
            assert await session.fetchval(retries, task) == 0
            listener.may_go_on.set()
        await eventually(lambda: [one.execution_id for one in listener.completions] == [task, plain])
    assert await session.fetchval(retries, task) == 1
    assert await auditor.line("core.slow") == ([] if is_cured else [(task, "active")])


async def a_dispatch(executor: StockExecutor) -> Dispatch:
    """To a worker that has no queue: only its letter matters."""
    worker_id = await executor.database.session.fetchval(
        "INSERT INTO worker (name, worker_type, worker_role) VALUES ('gone', 'local', 'action') RETURNING id"
    )
    return await executor.schedule(await executor.create_execution(), worker_id)


def a_monitor(executor: StockExecutor, cured: Cured) -> StockTimeoutMonitor:
    return StockTimeoutMonitor(
        executor.database,
        executor.publisher.publish,
        executor.may_still_take,
        times=SCALED,
        scheduled_timeout_seconds=SCALED.scheduled_timeout_seconds,
        check_seconds=60,
        cured=cured,
    )


async def let_time_pass(executor: StockExecutor, seconds: float) -> None:
    """For every execution, without its trigger, which would stamp it anew."""
    async with executor.database.transaction() as session:
        await session.execute("SET LOCAL session_replication_role = replica")
        await session.execute(
            "UPDATE execution SET updated = updated - make_interval(secs => $1)", float(seconds)
        )


async def bury(vhost: str, dispatch: Dispatch) -> None:
    """As a letter that found its way, which in stock Attune none does (D1)."""
    async with await open_connection(vhost) as connection:
        await Publisher(connection).publish(replace(dispatch.message, exchange=topology.DLX, routing_key="#"))


async def set_status(executor: StockExecutor, execution_id: int, status: str) -> None:
    await executor.database.session.execute(
        "UPDATE execution SET status = $2 WHERE id = $1", execution_id, status
    )


async def set_worker(executor: StockExecutor, worker: StockWorker, status: str) -> None:
    await executor.database.session.execute("UPDATE worker SET status = $2 WHERE id = $1", worker.id, status)
