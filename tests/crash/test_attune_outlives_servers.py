"""The reference Attune while its servers are away: no process ends, what runs goes on, and work flows afterwards."""

from pathlib import Path

from dlq_handler.sandbox.attune.auditor import Auditor
from dlq_handler.sandbox.servers import PrivatePostgreSQL, PrivateRabbitMQ
from tests.support.eventually import eventually
from tests.support.reference_attune import ReferenceAttune, reference_attune

PARTS = ("api", "executor", "worker worker-shell")
WORKER = PARTS[-1]
# Without these a database that is away may cost a message, and more than 5 s of it a worker: stock defects, not ours.
CURED = "D5,D10"


async def test_servers_may_be_away_at_the_start_and_while_actions_run(
    vhost: str, database: str, rabbitmq: PrivateRabbitMQ, postgres: PrivatePostgreSQL, tmp_path: Path
) -> None:
    async with reference_attune(tmp_path, vhost, database, SANDBOX_CURED=CURED) as attune:
        try:
            await rabbitmq.stop()
            for part in PARTS:
                attune.launch(part)
            await eventually(lambda: all("cannot begin yet" in attune.log(part) for part in PARTS))
        finally:
            await rabbitmq.start()
        for part in PARTS:
            await attune.until_well(part)
        pids = {part: attune.pid(part) for part in PARTS}
        async with Auditor(vhost, database) as auditor:
            for server in (rabbitmq, postgres):
                await _runs_through_a_kill(attune, auditor, server)
        assert {part: attune.pid(part) for part in PARTS if attune.is_running(part)} == pids


async def _runs_through_a_kill(
    attune: ReferenceAttune, auditor: Auditor, server: PrivateRabbitMQ | PrivatePostgreSQL
) -> None:
    running = await attune.execute("core.sleep", seconds=1)
    await attune.until_status(running, "running")
    ended = f"execution {running} (core.sleep) completed"
    try:
        await server.kill()
        if isinstance(server, PrivateRabbitMQ):
            # Its end is written while the broker is away, and announced afterwards.
            await eventually(lambda: ended in attune.log(WORKER))
        else:
            assert ended not in attune.log(WORKER)
    finally:
        await server.start()
    for part in PARTS:
        await attune.until_well(part)
    await attune.until_status(running, "completed")
    following = await attune.execute("core.slow", seconds=0.1)
    await attune.until_status(following, "completed")

    async def are_announced() -> bool:
        return {running, following} <= set(await auditor.notice_counts())

    await eventually(are_announced)
