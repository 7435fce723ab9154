"""A reference worker whose queues belong to a flow: it declares nothing, and takes no work before they exist."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.attune import topology
from sandbox.attune.amqp import open_connection
from sandbox.attune.environment import BadEnvironment, Environment
from sandbox.attune.executor import StockExecutor
from sandbox.attune.topology import QueueMissing, WorkerQueues
from sandbox.attune.worker import StockWorker
from sandbox.servers import RabbitMQ
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.reference_attune import ReferenceAttune, reference_attune
from tests.tools.attune.declared import declared_exchanges, declared_queues

WORKER = "worker worker-shell"


@pytest.fixture
async def attune(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[ReferenceAttune]:
    async with reference_attune(tmp_path, vhost, database, SANDBOX_WORKER_QUEUES="flow") as attune:
        yield attune


async def make_queues(vhost: str, worker_id: int, *, missing: str = "") -> None:
    """As the start of a flow does."""
    async with await open_connection(vhost) as connection:
        channel = await connection.channel()
        await topology.declare_common(channel)
        await topology.declare_worker(channel, worker_id)
        if missing:
            await channel.queue_delete(missing)


async def test_without_its_flow_it_declares_nothing_and_is_not_active(
    vhost: str, database: str, rabbitmq: RabbitMQ, auditor: Auditor
) -> None:
    before = await declared_queues(rabbitmq, vhost)
    worker = StockWorker(vhost, database, name="worker-shell", queues=WorkerQueues.FLOW)
    with pytest.raises(QueueMissing, match=r"worker\.1\.executions does not exist.*--param id=1"):
        await worker.start()
    assert await declared_queues(rabbitmq, vhost) == before
    assert await worker_status(auditor) == "inactive"


@pytest.mark.parametrize("kind", ["executions", "packs", "cancel"])
async def test_it_needs_each_of_its_queues(kind: str, vhost: str, database: str) -> None:
    await make_queues(vhost, 1, missing=f"worker.1.{kind}")
    worker = StockWorker(vhost, database, name="worker-shell", queues=WorkerQueues.FLOW)
    with pytest.raises(QueueMissing, match=kind):
        await worker.start()


async def test_it_waits_for_its_flow_and_then_works(
    attune: ReferenceAttune, executor: StockExecutor, auditor: Auditor, vhost: str, rabbitmq: RabbitMQ
) -> None:
    attune.launch(WORKER)
    await eventually(lambda: "cannot begin yet: QueueMissing: worker.1.executions" in attune.log(WORKER))
    assert await worker_status(auditor) == "inactive"
    await make_queues(vhost, 1)
    made = await declared_queues(rabbitmq, vhost), await declared_exchanges(rabbitmq, vhost)
    await attune.until_healthy(WORKER)
    [dispatch] = await executor.schedule_many(1, 1)

    async def is_completed() -> bool:
        return await auditor.status(dispatch.execution_id) == "completed"

    await eventually(is_completed)
    assert (await declared_queues(rabbitmq, vhost), await declared_exchanges(rabbitmq, vhost)) == made


async def test_one_that_was_active_is_not_when_its_flow_has_ended(
    vhost: str, database: str, auditor: Auditor
) -> None:
    """Attune would dispatch to it, and lose each dispatch (D21)."""
    await make_queues(vhost, 1)
    async with StockWorker(vhost, database, name="worker-shell", queues=WorkerQueues.FLOW):
        assert await worker_status(auditor) == "active"
    await make_queues(vhost, 1, missing="worker.1.executions")
    returned = StockWorker(vhost, database, name="worker-shell", queues=WorkerQueues.FLOW)
    with pytest.raises(QueueMissing):
        await returned.start()
    assert await worker_status(auditor) == "inactive"


def test_any_other_owner_is_refused() -> None:
    assert Environment.read({}).worker_queues is WorkerQueues.OWN
    with pytest.raises(BadEnvironment, match="SANDBOX_WORKER_QUEUES is 'mine'; wanted is own or flow"):
        Environment.read({"SANDBOX_WORKER_QUEUES": "mine"})


async def worker_status(auditor: Auditor) -> str:
    status: str = await auditor.database.session.fetchval("SELECT status FROM worker")
    return status
