"""The parts of the reference as processes: how they end, what ends with them, and their messages."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from sandbox.attune import topology
from sandbox.attune.__main__ import main
from sandbox.attune.executor import StockExecutor
from sandbox.attune.health import Unhealthy
from sandbox.servers import RabbitMQ
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.reference_attune import ReferenceAttune, reference_attune
from tests.tools.attune.declared import declared_queues
from tests.tools.attune.until_ready import until_ready

WORKER = "worker worker-shell"


@pytest.fixture
async def attune(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[ReferenceAttune]:
    async with reference_attune(tmp_path, vhost, database) as attune:
        yield attune


class Watched:
    """A worker that runs something, dispatched by hand."""

    def __init__(self, attune: ReferenceAttune, executor: StockExecutor, auditor: Auditor) -> None:
        self.attune, self.executor, self.auditor = attune, executor, auditor

    async def row(self) -> tuple[int, str]:
        row = await self.executor.database.session.fetchrow("SELECT id, status FROM worker")
        assert row is not None
        return row["id"], row["status"]

    async def run(self, seconds: float) -> int:
        """An execution that sleeps for so long, once it does."""
        worker_id, _ = await self.row()
        execution_id = await self.executor.create_execution("core.sleep", config={"seconds": seconds})
        await self.executor.schedule(execution_id, worker_id)
        await self.until(execution_id, "running")
        await eventually(lambda: [one for one in self.children() if "sleep" in one.name()])
        return execution_id

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.attune.pid(WORKER)).children(recursive=True)

    async def until(self, execution_id: int, status: str) -> None:
        async def is_so() -> bool:
            return await self.auditor.status(execution_id) == status

        await eventually(is_so)


@pytest.fixture
async def it(attune: ReferenceAttune, executor: StockExecutor, auditor: Auditor) -> Watched:
    await attune.start(WORKER)
    return Watched(attune, executor, auditor)


async def test_a_worker_that_is_asked_to_stop_finishes_and_is_inactive(it: Watched) -> None:
    execution_id = await it.run(1.5)
    it.attune.send(WORKER, signal.SIGTERM)

    async def is_inactive() -> bool:
        return (await it.row())[1] == "inactive"

    await eventually(is_inactive)
    assert await it.auditor.status(execution_id) == "running"
    await it.attune.stop(WORKER)
    assert await it.auditor.status(execution_id) == "completed"
    assert await it.auditor.completion_counts() == {execution_id: 1}
    with pytest.raises(Unhealthy, match="inactive"):
        await it.attune.health(WORKER)


async def test_a_worker_that_is_asked_to_stop_waits_only_so_long(it: Watched) -> None:
    execution_id = await it.run(600)
    await it.attune.stop(WORKER)
    assert "1 executions are left behind" in it.attune.log(WORKER)
    assert await it.auditor.status(execution_id) == "running"


async def test_a_worker_that_is_killed_stays_active_and_its_actions_die_with_it(it: Watched) -> None:
    execution_id = await it.run(600)
    worker_id, _ = await it.row()
    [action] = it.children()
    await it.attune.kill(WORKER)
    await eventually(lambda: not action.is_running())
    assert await it.row() == (worker_id, "active")
    assert await it.auditor.status(execution_id) == "running"
    await it.attune.start(WORKER)
    assert await it.row() == (worker_id, "active")


async def test_a_worker_that_hangs_takes_nothing_up_until_it_goes_on(it: Watched, vhost: str) -> None:
    it.attune.send(WORKER, signal.SIGSTOP)
    await eventually(lambda: psutil.Process(it.attune.pid(WORKER)).status() == psutil.STATUS_STOPPED)
    worker_id, _ = await it.row()
    execution_id = await it.executor.create_execution("core.echo")
    await it.executor.schedule(execution_id, worker_id)
    # Delivered to its socket, so neither ready nor able to expire.
    await until_ready(vhost, topology.worker_queue(worker_id), 0)
    assert await it.auditor.status(execution_id) == "scheduled"
    it.attune.send(WORKER, signal.SIGCONT)
    await it.until(execution_id, "completed")


async def test_a_cured_defect_is_named_and_absent(
    attune: ReferenceAttune, vhost: str, rabbitmq: RabbitMQ
) -> None:
    attune.variables["SANDBOX_CURED"] = "d1, D9"
    await attune.start(WORKER)
    assert "the defects D2 D5 D6 D8 D10 D12" in attune.log(WORKER)
    _, bindings = (await declared_queues(rabbitmq, vhost))[topology.DLX_QUEUE]
    assert bindings == {(topology.DLX, "#"), (topology.DLX, topology.dispatch_key(1))}


@pytest.mark.parametrize(
    ("name", "value", "complaint_part"),
    [
        ("SANDBOX_TIMES", "fast", "known are scaled and stock"),
        ("SANDBOX_CURED", "D1,D99", "D99: no such defect; known are D1, D2"),
        ("SANDBOX_API_PORT", "http", "wanted is a whole number"),
        ("ATTUNE__EXECUTOR__ENABLE_TIMEOUT_MONITOR", "maybe", "wanted is true or false"),
    ],
)
def test_an_environment_that_cannot_be_is_refused_in_a_sentence(
    name: str,
    value: str,
    complaint_part: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["executor"]) == 78
    complaint = capsys.readouterr().err
    assert name in complaint
    assert complaint_part in complaint


def test_health_of_what_is_not_there_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SANDBOX_API_PORT", "9")
    monkeypatch.setenv("ATTUNE__MESSAGE_QUEUE__URL", "amqp://guest:guest@127.0.0.1:9/")
    monkeypatch.setenv("ATTUNE__DATABASE__URL", "postgresql://nobody@127.0.0.1:9/none")
    for words in (["api"], ["executor"], ["worker", "worker-shell"]):
        assert main(["health", *words]) == 1
        out = capsys.readouterr().out
        assert out.startswith("unhealthy: ")
        assert out.count("\n") == 1
