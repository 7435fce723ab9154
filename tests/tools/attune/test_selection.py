"""Which worker the scheduler chooses: by runtime, status, cordon and heartbeat, one after the other."""

from collections.abc import AsyncIterator

import pytest

from sandbox.attune.actions import install_actions
from sandbox.attune.executor import StockExecutor
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.worker import StockWorker
from sandbox.attune.worker_selection import Choice, WorkerSelection
from tests.support.auditor import Auditor
from tests.support.eventually import eventually


@pytest.fixture
async def hands(executor: StockExecutor) -> StockExecutor:
    async with executor.database.transaction() as session:
        await install_actions(session)
    return executor


@pytest.fixture
async def python(vhost: str, database: str) -> AsyncIterator[StockWorker]:
    async with StockWorker(vhost, database, name="worker-python", runtimes=["python"]) as worker:
        yield worker


async def chosen(hands: StockExecutor, action_ref: str, selection: WorkerSelection | None = None) -> Choice:
    selection = selection or WorkerSelection(90)
    return await selection.choose(hands.database.session, await hands.create_execution(action_ref))


async def test_a_runtime_must_be_among_the_worker_s(
    hands: StockExecutor, worker: StockWorker, python: StockWorker
) -> None:
    assert (await chosen(hands, "shell.echo")).worker_id == worker.id
    assert (await chosen(hands, "python.echo")).worker_id == python.id
    node = await chosen(hands, "node.echo")
    assert (node.has_fitting_worker, node.wanted) == (False, ["node"])


async def test_required_runtimes_must_all_be_there(hands: StockExecutor, python: StockWorker) -> None:
    require = "UPDATE action SET required_worker_runtimes = $1 WHERE ref = 'core.echo'"
    await hands.database.session.execute(require, {"python": ">=3"})
    assert (await chosen(hands, "core.echo")).worker_id == python.id
    await hands.database.session.execute(require, {"python": ">=3", "shell": "*"})
    both = await chosen(hands, "core.echo")
    assert (both.has_fitting_worker, both.wanted) == (False, ["python", "shell"])


async def test_an_action_without_a_runtime_goes_round_everybody(
    hands: StockExecutor, worker: StockWorker, python: StockWorker
) -> None:
    selection = WorkerSelection(90)
    ids = [(await chosen(hands, "core.echo", selection)).worker_id for _ in range(4)]
    assert ids == [worker.id, python.id, worker.id, python.id]


async def test_unavailable_workers_are_not_chosen(hands: StockExecutor, worker: StockWorker) -> None:
    for change in (
        "status = 'inactive'",
        "status = 'error'",
        "cordoned = true",
        "last_heartbeat = NULL",
        "last_heartbeat = now() - interval '91 seconds'",
        "last_heartbeat = now() + interval '1 minute'",
    ):
        await hands.database.session.execute(
            "UPDATE worker SET status = 'active', cordoned = false, last_heartbeat = now()"
        )
        assert (await chosen(hands, "shell.echo")).worker_id == worker.id
        await hands.database.session.execute(f"UPDATE worker SET {change}")
        no_worker = Choice(wanted=["shell"], has_fitting_worker=True, worker_id=None)
        assert await chosen(hands, "shell.echo") == no_worker, change


async def test_without_a_fitting_worker_the_scheduler_fails_and_publishes(
    vhost: str, database: str, hands: StockExecutor, worker: StockWorker, auditor: Auditor
) -> None:
    async with Scheduler(vhost, database) as scheduler:
        unfit = await hands.create_execution("node.echo")
        await hands.request(unfit)

        async def has_failed() -> bool:
            return await auditor.status(unfit) == "failed"

        await eventually(has_failed)
        await eventually(auditor.waiting)
        assert scheduler.dispatched == []
    [completion] = await auditor.completions()
    assert (completion.execution_id, completion.payload["status"]) == (unfit, "failed")
    assert "node" in (await auditor.result(unfit))["message"]
