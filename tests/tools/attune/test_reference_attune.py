"""A stranger uses the reference Attune: over HTTP and AMQP alone, without the sidecar and with it."""

from collections import Counter
from pathlib import Path
from typing import Any

from sandbox.times import SCALED, sidecar_environment
from tests.support.eventually import eventually
from tests.support.reference_attune import ReferenceAttune, completion_counts, reference_attune
from tests.support.sidecar import sidecar_process

WORKERS = ("worker worker-shell", "worker worker-python")
# With this defect no action with a limit ever runs: core.slow.
CURED = "D15"


async def everything_works(attune: ReferenceAttune, ends: Counter[int]) -> None:
    """Good and bad actions end, the line of core.slow moves, and each end is announced once."""
    expected = {
        await attune.execute("core.echo", message="hi"): "completed",
        await attune.execute("core.fail"): "failed",
        await attune.execute("python.echo"): "completed",
        **{await attune.execute("core.slow", seconds=0.1): "completed" for _ in range(4)},
    }
    for execution_id, status in expected.items():
        await attune.until_status(execution_id, status)
    await eventually(lambda: expected.keys() <= ends.keys())
    assert {ends[execution_id] for execution_id in expected} == {1}


async def test_alone_it_runs_what_it_is_asked_to(vhost: str, database: str, tmp_path: Path) -> None:
    async with reference_attune(tmp_path, vhost, database, SANDBOX_CURED=CURED) as attune:
        await attune.start("api", "executor", *WORKERS)
        async with completion_counts(vhost) as ends:
            await everything_works(attune, ends)


async def test_beside_the_sidecar_lost_work_ends_and_all_else_is_as_before(
    vhost: str, database: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = sidecar_environment(SCALED)
    # Attune's own monitor would end what was lost as well, and nobody could tell who did.
    variables = {"ATTUNE__EXECUTOR__ENABLE_TIMEOUT_MONITOR": "false", "SANDBOX_CURED": CURED}
    async with (
        reference_attune(tmp_path, vhost, database, **variables) as attune,
        sidecar_process(tmp_path, vhost, database, intake__queue="attune.dlx.sidecar.queue", **settings),
    ):
        await attune.start("api", "executor", *WORKERS)
        async with completion_counts(vhost) as ends:
            await everything_works(attune, ends)
            for worker in WORKERS:
                await attune.kill(worker)
            lost = [await attune.execute("core.slow") for _ in range(2)]
            # Gets a slot when the others have failed; by then no worker is left, and its request is dropped (D6).
            third = await attune.execute("core.slow")
            for execution_id in lost:
                execution = await attune.until_status(execution_id, "failed")
                assert execution["result"]["error"] == "Worker queue TTL expired"
            await eventually(lambda: [ends[one] for one in lost] == [1, 1])
            assert (await attune.execution(third))["status"] in {"requested", "scheduling"}
            await attune.start(*WORKERS)
            await everything_works(attune, ends)
            await attune.until_status(third, "completed")


async def test_slots_of_cancelled_executions_are_freed(vhost: str, database: str, tmp_path: Path) -> None:
    """Attune leaks them (D14): those of executions that held one, and later that of one which waited in line."""
    variables = {"ATTUNE__EXECUTOR__ENABLE_TIMEOUT_MONITOR": "false", "SANDBOX_CURED": CURED}
    settings: dict[str, Any] = sidecar_environment(SCALED)
    async with (
        reference_attune(tmp_path, vhost, database, **variables) as attune,
        sidecar_process(tmp_path, vhost, database, intake__queue="attune.dlx.sidecar.queue", **settings),
    ):
        await attune.start("api", "executor", WORKERS[0])
        await attune.kill(WORKERS[0])
        holding = [await attune.execute("core.slow") for _ in range(2)]
        for execution_id in holding:
            await attune.until_status(execution_id, "scheduled")
        in_line, last = [await attune.execute("core.slow", seconds=0.1) for _ in range(2)]
        await eventually(lambda: waits_in_line(attune, queued=2))
        for execution_id in (*holding, in_line):
            assert (await attune.cancel(execution_id))["status"] == "cancelled"
        await attune.start(WORKERS[0])
        await attune.until_status(last, "completed", timeout=120)
        await eventually(lambda: waits_in_line(attune, queued=0), timeout=120)
        for execution_id in (*holding, in_line):
            assert (await attune.execution(execution_id))["status"] == "cancelled"


async def waits_in_line(attune: ReferenceAttune, *, queued: int) -> bool:
    """So many wait for a slot; with none that waits no slot is held either."""
    async with attune.http() as client:
        stats = (await client.get("/api/v1/actions/core.slow/queue-stats")).json()["data"]
    seen = (stats["queue_length"], stats["active_count"])
    assert seen == ((queued, 2) if queued else (0, 0))
    return True
