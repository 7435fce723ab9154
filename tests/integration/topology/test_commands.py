"""The commands as an operator runs them: exit codes, text and JSON."""

import json

from sandbox.attune.database import Database as AttuneDatabase
from sandbox.attune.topology import verify_redeclare
from sandbox.servers.ports import free_port
from tests.support.sidecar import Command


async def add_workers(database: str, count: int) -> list[int]:
    attune = await AttuneDatabase.open(database)
    try:
        rows = await attune.session.fetch(
            "INSERT INTO worker (name, worker_type, worker_role) SELECT 'w' || n, 'local', 'action'"
            " FROM generate_series(1, $1) n RETURNING id",
            count,
        )
    finally:
        await attune.close()
    return [row["id"] for row in rows]


async def test_check_reports_a_broken_route_until_apply_has_run(
    command: Command, vhost: str, database: str
) -> None:
    [worker] = await add_workers(database, 1)
    await verify_redeclare(vhost, {worker: 300_000})
    queue = f"worker.{worker}.executions"

    code, out, _ = await command().cli("topology", "check")
    assert code == 1
    assert "conclusion: broken route" in out
    assert "has no way to the intake queue" in out

    applied = await command().cli_json("topology", "apply")
    assert applied["made"] == []
    assert applied["bound"] == [f"execution.dispatch.worker.{worker}"]

    code, out, err = await command().cli("topology", "check", "--output", "json")
    assert code == 0, err
    report = json.loads(out)["topology"]
    assert report["conclusion"] == "fine"
    [row] = [row for row in report["queues"] if row["queue"] == queue]
    assert (row["role"], row["arrives"]) == ("worker", "yes")
    assert row["path"][-1] == {"name": "attune.dlx.queue"}
    await verify_redeclare(vhost, {worker: 300_000})


async def test_check_ends_with_2_without_the_management_api_and_69_without_a_broker(
    command: Command, vhost: str, database: str
) -> None:
    [worker] = await add_workers(database, 1)
    await verify_redeclare(vhost, {worker: 300_000})
    nowhere = str(free_port())

    no_api = command(ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL=f"http://127.0.0.1:{nowhere}")
    no_broker = command(ATTUNE__MESSAGE_QUEUE__URL=f"amqp://127.0.0.1:{nowhere}/")

    code, out, err = await no_api.cli("topology", "check")
    assert (code, "conclusion: unknown" in out) == (2, True), err
    assert "neither bindings nor policies" in err
    code, _, err = await no_broker.cli("topology", "check")
    assert code == 69
    assert len(err.strip().splitlines()) == 1


async def test_with_dead_lettering_off_check_warns_of_what_is_dropped(
    command: Command, vhost: str, database: str
) -> None:
    [worker] = await add_workers(database, 1)
    await verify_redeclare(vhost, {worker: 300_000})
    off = command(ATTUNE__MESSAGE_QUEUE__RABBITMQ__DEAD_LETTER__ENABLED="false")

    code, out, _ = await off.cli("topology", "check")

    assert code == 0
    assert "drop expired and rejected messages while dead lettering is off" in out


async def test_a_worker_queue_is_declared_only_with_yes_and_only_with_the_ttl_of_the_others(
    command: Command, vhost: str, database: str
) -> None:
    first, second = await add_workers(database, 2)
    await verify_redeclare(vhost, {first: 300_000})
    declare = ("topology", "declare-worker-queue", str(second))

    code, _, err = await command().cli(*declare)
    assert (code, "add --yes" in err) == (1, True)
    shorter = command(ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS="60000")
    code, _, err = await shorter.cli(*declare, "--yes")
    assert (code, "x-message-ttl=300000, wanted was 60000" in err.replace("\n", " ")) == (1, True), err

    declared = await command().cli_json(*declare, "--yes")
    assert declared == {"queue": f"worker.{second}.executions", "ttl_ms": 300_000, "made": True}
    await verify_redeclare(vhost, {first: 300_000, second: 300_000})
