"""The reference Attune while its servers are away: no process ends, what runs goes on, and work flows afterwards.

After a loss of the broker its services must be restarted, as Attune's own.
"""

from pathlib import Path

import pytest

from sandbox.servers import PrivatePostgreSQL, PrivateRabbitMQ
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.reference_attune import ReferenceAttune, reference_attune

PARTS = ("api", "executor", "worker worker-shell")
WORKER = PARTS[-1]
# D15: core.slow runs. Without the others a database that is away may cost a message, and more than 5 s of it a worker:
# stock defects, not ours.
CURED = "D5,D10,D15"


@pytest.mark.parametrize("connects_again", [False, True], ids=["as stock", "with reconnecting services"])
async def test_servers_may_be_away_at_the_start_and_while_actions_run(
    vhost: str,
    database: str,
    rabbitmq: PrivateRabbitMQ,
    postgres: PrivatePostgreSQL,
    tmp_path: Path,
    *,
    connects_again: bool,
) -> None:
    cured = f"{CURED},NO_RECONNECT" if connects_again else CURED
    async with reference_attune(tmp_path, vhost, database, SANDBOX_CURED=cured) as attune:
        try:
            await rabbitmq.stop()
            for part in PARTS:
                attune.launch(part)
            await eventually(lambda: all("cannot begin yet" in attune.log(part) for part in PARTS))
        finally:
            await rabbitmq.start()
        for part in PARTS:
            await attune.until_healthy(part)
        async with Auditor(vhost, database) as auditor:
            for server in (rabbitmq, postgres):
                await _runs_through_a_kill(attune, auditor, server, connects_again=connects_again)


async def _runs_through_a_kill(
    attune: ReferenceAttune,
    auditor: Auditor,
    server: PrivateRabbitMQ | PrivatePostgreSQL,
    *,
    connects_again: bool,
) -> None:
    is_broker = isinstance(server, PrivateRabbitMQ)
    pids = {part: attune.pid(part) for part in PARTS}
    running = await attune.execute("core.sleep", seconds=3)
    await attune.until_status(running, "running")
    ended = f"execution {running} (core.sleep) completed"
    try:
        await server.kill()
        if is_broker:
            # Its end is written while the broker is away; whether it is published too is another matter.
            await eventually(lambda: ended in attune.log(WORKER))
        else:
            assert ended not in attune.log(WORKER)
    finally:
        await server.start()
    assert {part: attune.pid(part) for part in PARTS if attune.is_running(part)} == pids
    if is_broker and not connects_again:
        for part in PARTS:
            await attune.stop(part)
        await attune.start(*PARTS)
    for part in PARTS:
        await attune.until_healthy(part)
    await attune.until_status(running, "completed")
    following = await attune.execute("core.slow", seconds=0.1)
    await attune.until_status(following, "completed")
    published = {following} if is_broker and not connects_again else {running, following}

    async def are_announced() -> bool:
        return published <= set(await auditor.completion_counts())

    await eventually(are_announced)
    if running not in published:
        assert running not in await auditor.completion_counts(), "its worker had lost the broker"
