"""The consumers of the reference Attune: listener, scheduler, worker, dead-letter handler; the auditor."""

import asyncio
from typing import Any

import pytest

from sandbox.attune import messages, topology
from sandbox.attune.amqp import open_connection
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.dead_letter_handler import StockDeadLetterHandler
from sandbox.attune.executor import Dispatch, StockExecutor
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.worker import StockWorker
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.tools.attune.until_ready import until_ready


@pytest.mark.usefixtures("admission_works")
async def test_a_completion_event_frees_the_slot_and_requests_the_next(
    executor: StockExecutor, listener: CompletionListener, auditor: Auditor, vhost: str
) -> None:
    await executor.ensure_action("core.slow", concurrency_limit=1)
    first, second = [await executor.create_execution("core.slow") for _ in range(2)]
    for one in (first, second):
        await executor.admit(one)
    await _set_status(executor, first, "failed")
    completion = messages.execution_completed(execution_id=first, action_ref="core.slow", status="failed")
    await executor.publisher.publish(completion)

    await eventually(lambda: listener.promoted == [second])
    assert await auditor.line("core.slow") == [(second, "active")]
    await until_ready(vhost, topology.REQUESTS_QUEUE, 1)
    assert [seen.message_id for seen in listener.completions] == [completion.message_id]


@pytest.mark.usefixtures("admission_works")
async def test_a_second_completion_event_frees_nothing_more(
    executor: StockExecutor, listener: CompletionListener, auditor: Auditor
) -> None:
    await executor.ensure_action("core.slow", concurrency_limit=1)
    ids = [await executor.create_execution("core.slow") for _ in range(3)]
    for one in ids:
        await executor.admit(one)
    for _ in range(2):
        await executor.publisher.publish(
            messages.execution_completed(execution_id=ids[0], action_ref="core.slow", status="failed")
        )
    await eventually(lambda: len(listener.completions) == 2)
    await eventually(lambda: listener.promoted == [ids[1]])
    assert await auditor.line("core.slow") == [(ids[1], "active"), (ids[2], "queued")]


async def test_a_repeated_completion_event_of_a_workflow_task_makes_a_second_retry(
    executor: StockExecutor, listener: CompletionListener
) -> None:
    task = {"workflow_execution": 1, "task_name": "build", "retry_count": 0, "max_retries": 1}
    execution_id = await executor.create_execution(workflow_task=task)
    await _set_status(executor, execution_id, "failed")
    for _ in range(2):
        await executor.publisher.publish(
            messages.execution_completed(execution_id=execution_id, action_ref="core.echo", status="failed")
        )
    count = "SELECT count(*) FROM execution WHERE original_execution = $1"

    async def retried_twice() -> Any:
        return await executor.database.session.fetchval(count, execution_id) == 2

    await eventually(retried_twice)


async def test_a_completion_event_advances_the_workflow_once(
    executor: StockExecutor, listener: CompletionListener
) -> None:
    session = executor.database.session
    parent = await executor.create_execution("core.flow")
    workflow = await session.fetchval(
        "INSERT INTO workflow_execution (execution, current_tasks) VALUES ($1, '{build}') RETURNING id",
        parent,
    )
    task = {"workflow_execution": workflow, "task_name": "build"}
    child = await executor.create_execution(parent=parent, workflow_task=task)
    await _set_status(executor, child, "failed")
    for _ in range(2):
        await executor.publisher.publish(
            messages.execution_completed(execution_id=child, action_ref="core.echo", status="failed")
        )
    await eventually(lambda: len(listener.completions) == 2)

    async def failed_tasks() -> Any:
        return await session.fetchval("SELECT failed_tasks FROM workflow_execution") == ["build"]

    await eventually(failed_tasks)


async def test_a_live_worker_runs_a_request_to_its_end(
    vhost: str, database: str, executor: StockExecutor, worker: StockWorker, auditor: Auditor
) -> None:
    await worker.consume()
    async with Scheduler(vhost, database):
        execution_id = await executor.create_execution(config={"message": "hi"})
        await executor.request(execution_id)
        await eventually(lambda: worker.ran == [execution_id])
    assert await auditor.status(execution_id) == "completed"
    [completion] = await auditor.completions()
    assert (completion.execution_id, completion.payload["status"]) == (execution_id, "Completed")
    statuses = [row.new_values["status"] for row in await auditor.history(execution_id) if row.new_values]
    assert statuses == ["requested", "scheduling", "scheduled", "running", "completed"]


@pytest.mark.usefixtures("admission_works")
async def test_a_finished_execution_lets_the_next_of_the_line_run(
    vhost: str, database: str, executor: StockExecutor, worker: StockWorker, listener: CompletionListener
) -> None:
    await executor.ensure_action("core.slow", concurrency_limit=1)
    ids = [await executor.create_execution("core.slow") for _ in range(5)]
    await worker.consume()
    async with Scheduler(vhost, database):
        for one in ids:
            await executor.request(one)
        await eventually(lambda: len(worker.ran) == 5)
    assert worker.ran == ids


async def test_an_action_that_raises_ends_as_failed(
    vhost: str, database: str, executor: StockExecutor, auditor: Auditor
) -> None:
    async def break_down(payload: dict[str, object]) -> object:
        raise RuntimeError("no such file")

    async with StockWorker(vhost, database, run_action=break_down) as worker:
        await worker.consume()
        dispatch = await executor.schedule(await executor.create_execution(), worker.id)
        await eventually(lambda: worker.ran == [dispatch.execution_id])
    assert await auditor.status(dispatch.execution_id) == "failed"
    assert await auditor.result(dispatch.execution_id) == {"error": "no such file"}


async def test_a_worker_keeps_its_id_when_it_registers_again(
    vhost: str, database: str, worker: StockWorker
) -> None:
    await worker.stop()
    async with StockWorker(vhost, database, name=worker.name) as returned:
        assert returned.id == worker.id
        status = await returned.database.session.fetchval("SELECT status FROM worker")
        assert status == "active"


async def test_a_graceful_stop_writes_inactive_and_a_loss_does_not(
    executor: StockExecutor, vhost: str, database: str
) -> None:
    stopped = StockWorker(vhost, database, name="worker-stopped")
    lost = StockWorker(vhost, database, name="worker-lost")
    for one in (stopped, lost):
        await one.start()
    await stopped.stop()
    await lost.die()
    rows = await executor.database.session.fetch("SELECT name, status FROM worker ORDER BY name")
    assert [tuple(row.values()) for row in rows] == [
        ("worker-lost", "active"),
        ("worker-stopped", "inactive"),
    ]
    for one in (stopped, lost):
        assert await topology.ready_count(vhost, topology.worker_queue(one.id)) == 0


async def test_a_beating_worker_stays_fresh_by_itself(vhost: str, database: str) -> None:
    async with StockWorker(vhost, database, heartbeat_seconds=0.01) as worker:
        await worker.heartbeat(age_seconds=100)
        fresh = "SELECT last_heartbeat > now() - interval '50 s' FROM worker"
        await eventually(lambda: worker.database.session.fetchval(fresh))


async def test_what_a_hanging_worker_holds_does_not_expire_until_it_dies(
    vhost: str, database: str, executor: StockExecutor
) -> None:
    async with (
        StockWorker(vhost, database, ttl_ms=50, name="worker-absent") as absent,
        StockWorker(vhost, database, ttl_ms=50, name="worker-hung") as hung,
    ):
        witness = await _witness_of_deaths(vhost, absent.id, hung.id)
        await hung.hang()
        await executor.schedule(await executor.create_execution(), hung.id)
        await eventually(lambda: hung.held)
        # Published later under the same TTL: when this one has died, the held one is past its time too.
        await executor.schedule(await executor.create_execution(), absent.id)
        await until_ready(vhost, witness, 1)
        await hung.die()
        await until_ready(vhost, witness, 2)


async def test_prefetched_messages_return_to_the_queue_when_the_worker_dies(
    vhost: str, database: str, executor: StockExecutor
) -> None:
    async def work_for_ever(_: dict[str, Any]) -> object:
        return await asyncio.Event().wait()

    worker = StockWorker(vhost, database, max_concurrent_tasks=1, run_action=work_for_ever)
    await worker.start()
    await worker.consume()
    for _ in range(3):
        await executor.schedule(await executor.create_execution(), worker.id)
    await eventually(lambda: len(worker.held) == 2)
    await worker.die()
    await until_ready(vhost, topology.worker_queue(worker.id), 2)


async def test_a_worker_skips_a_cancelled_execution(
    executor: StockExecutor, worker: StockWorker, auditor: Auditor
) -> None:
    cancelled = await executor.schedule(await executor.create_execution(), worker.id)
    await _set_status(executor, cancelled.execution_id, "cancelled")
    other = await executor.schedule(await executor.create_execution(), worker.id)
    await worker.consume()
    await eventually(lambda: worker.ran)
    assert worker.ran == [other.execution_id]
    assert await auditor.status(cancelled.execution_id) == "cancelled"


async def test_the_stock_handler_leaves_a_newer_attempt_alone(
    vhost: str, database: str, executor: StockExecutor, worker: StockWorker, auditor: Auditor
) -> None:
    dispatch = await executor.schedule(await executor.create_execution(), worker.id)
    await executor.database.session.execute("UPDATE execution SET env_vars = '{}'")
    async with StockDeadLetterHandler(vhost, database) as handler:
        await _deliver_to_dlq(vhost, dispatch)
        await eventually(lambda: handler.seen)
    assert handler.failed == []
    assert await auditor.status(dispatch.execution_id) == "scheduled"


async def test_the_auditor_counts_every_completion_event_once(
    executor: StockExecutor, auditor: Auditor
) -> None:
    sent = [
        messages.execution_completed(execution_id=n, action_ref="core.echo", status="failed")
        for n in (1, 2, 2)
    ]

    async def waiting(count: int) -> bool:
        return await auditor.waiting() == count

    # A routed message is in its queue a moment later: routing and queueing are two processes of the broker.
    await executor.publisher.publish_many(sent[:2])
    await eventually(lambda: waiting(2))
    assert len(await auditor.completions()) == 2
    await executor.publisher.publish_many(sent[2:])
    await eventually(lambda: waiting(1))
    assert [seen.message_id for seen in await auditor.completions()] == [one.message_id for one in sent]
    assert await auditor.completion_counts() == {1: 1, 2: 2}
    assert await auditor.waiting() == 0


async def _deliver_to_dlq(vhost: str, dispatch: Dispatch) -> None:
    """As if it had expired and the binding were right: straight into the stock queue."""
    connection = await open_connection(vhost)
    async with connection, asyncio.timeout(10):
        channel = await connection.channel()
        underlay = await channel.get_underlay_channel()
        await underlay.basic_publish(
            dispatch.message.body,
            exchange="",
            routing_key=topology.DLX_QUEUE,
            properties=dispatch.message.properties(),
        )


async def _witness_of_deaths(vhost: str, *worker_ids: int) -> str:
    connection = await open_connection(vhost)
    async with connection:
        queue = await (await connection.channel()).declare_queue("witness", durable=True)
        for worker_id in worker_ids:
            await queue.bind(topology.DLX, topology.dispatch_key(worker_id))
    return "witness"


async def _set_status(executor: StockExecutor, execution_id: int, status: str) -> None:
    await executor.database.session.execute(
        "UPDATE execution SET status = $2 WHERE id = $1", execution_id, status
    )
