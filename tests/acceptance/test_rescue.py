"""The journey the product exists for: a dispatch to a worker that is gone ends, is announced, and is on record."""

from pathlib import Path

from dlq_handler.sandbox.attune.auditor import Auditor
from dlq_handler.sandbox.attune.executor import StockExecutor
from dlq_handler.sandbox.attune.worker import StockWorker
from tests.support.eventually import eventually
from tests.support.sidecar import sidecar_process


async def test_executions_of_a_vanished_worker_are_failed_announced_and_recorded(
    vhost: str, database: str, tmp_path: Path
) -> None:
    async with StockExecutor(vhost, database) as executor, Auditor(vhost, database) as auditor:
        worker = StockWorker(vhost, database, name="gone", ttl_ms=500)
        await worker.start()
        await worker.vanish()
        async with sidecar_process(tmp_path, vhost, database) as sidecar:
            dispatched = await executor.schedule_many(20, worker.id)
            await eventually(lambda: _all_failed(auditor, len(dispatched)))
            await eventually(lambda: _announced(auditor, len(dispatched)))

            result = await auditor.result(dispatched[0].execution_id)
            assert result["error"] == "Worker queue TTL expired"
            counts = await auditor.notice_counts()
            assert counts == {dispatch.execution_id: 1 for dispatch in dispatched}

            letters = await sidecar.cli_json("letters", "list", "--outcome", "failed")
            assert {letter["execution_id"] for letter in letters} == set(counts)
            assert await sidecar.terminate() == 0


async def _all_failed(auditor: Auditor, count: int) -> bool:
    return (await auditor.statuses()) == {"failed": count}


async def _announced(auditor: Auditor, count: int) -> bool:
    return await auditor.waiting() == count
