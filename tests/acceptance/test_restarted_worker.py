"""A worker crashes while it runs something, and restarts under its name before it becomes unavailable."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg

from sandbox.servers import RabbitMQ
from sandbox.times import SCALED, sidecar_environment
from tests.support.eventually import eventually
from tests.support.reference_attune import ReferenceAttune, completion_counts, reference_attune
from tests.support.sidecar import SidecarProcess, sidecar_process
from tests.support.world import management_url

WORKER = "worker worker-shell"
PARTS = ("api", "executor", WORKER)

# The worker is never unavailable, however long its restart takes here; only its connection shows the restart.
SETTINGS: dict[str, Any] = {
    **sidecar_environment(SCALED),
    "ATTUNE__DLQ_HANDLER__WORKER__UNAVAILABLE_AFTER_SECONDS": "90",
    "intake__queue": "attune.dlx.sidecar.queue",
    "worker__reconnects": "false",
}
# Off: if the restart takes longer than 5 s here, Attune's own monitor abandons the executions before dlq-handler does.
# After a restart at once it leaves them running (test_stock_alone.py). With D15 core.slow would not run.
VARIABLES = {"ATTUNE__EXECUTOR__ENABLE_TIMEOUT_MONITOR": "false", "SANDBOX_CURED": "D15"}


async def looked_at_after(database_url: str, execution_id: int) -> None:
    """Until a look at the worker's connection was certainly after the execution began to run."""

    async def is_so() -> bool:
        session = await asyncpg.connect(database_url)
        try:
            row = await session.fetchrow(
                "SELECT look.observed_at, run.updated FROM dlq_handler.worker_connection look"
                " JOIN attune.execution run ON run.worker = look.worker_id WHERE run.id = $1",
                execution_id,
            )
        finally:
            await session.close()
        return row is not None and bool(row["observed_at"] > row["updated"] + timedelta(seconds=6))

    await eventually(is_so, timeout=60, every=0.2)


async def two_run_and_one_waits(attune: ReferenceAttune) -> tuple[list[int], int]:
    running = [await attune.execute("core.slow", seconds=600) for _ in range(2)]
    for one in running:
        await attune.until_status(one, "running")
    return running, await attune.execute("core.slow", seconds=600)


async def crash_and_restart(attune: ReferenceAttune) -> None:
    await attune.kill(WORKER)
    await attune.start(WORKER)


async def test_executions_of_the_crashed_process_are_abandoned_and_their_slots_go_on(
    vhost: str, database: str, tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    async with (
        reference_attune(tmp_path, vhost, database, **VARIABLES) as attune,
        sidecar_process(
            tmp_path, vhost, database, broker__management_url=management_url(rabbitmq), **SETTINGS
        ) as sidecar,
    ):
        await attune.start(*PARTS)
        async with completion_counts(vhost) as ends:
            running, third = await two_run_and_one_waits(attune)
            for one in running:
                await looked_at_after(database, one)
            await crash_and_restart(attune)
            for one in running:
                execution = await attune.until_status(one, "abandoned")
                assert execution["result"]["error"].startswith("Worker restarted: ")
                assert execution["result"]["abandoned_by"] == "dlq_handler"
            await eventually(lambda: [ends[one] for one in running] == [1, 1])
            # The executor has consumed a completion event: the slot of an abandoned one is free.
            await attune.until_status(third, "running", "failed")
            assert await was_ended_by_sidecar(sidecar, third) is False


async def was_ended_by_sidecar(sidecar: SidecarProcess, execution_id: int) -> bool:
    return execution_id in {one["execution_id"] for one in sidecar.events("stale_execution.decided")}
