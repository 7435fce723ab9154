"""`workers list` as an operator runs it, with a fleet in every state and servers that are not there."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import database_time
from dlq_handler.diagnosis.shared_view import Observation, encode
from dlq_handler.diagnosis.shared_view_sql import share
from dlq_handler.host.worker import QueueObservation
from sandbox.attune.executor import StockExecutor
from sandbox.attune.topology import worker_queue
from sandbox.attune.worker import StockWorker
from sandbox.servers import RabbitMQ
from sandbox.servers.ports import free_port
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.views import a_view, a_worker

Command = Callable[..., SidecarProcess]


@pytest.fixture
def command(rabbitmq: RabbitMQ, vhost: str, database: str, tmp_path: Path) -> Command:
    parts = urlsplit(rabbitmq.management_url)
    api = f"{parts.scheme}://{rabbitmq.user}:{rabbitmq.password}@{parts.netloc}"

    def with_settings(**environment: str) -> SidecarProcess:
        return SidecarProcess(
            tmp_path,
            amqp_url=vhost,
            database_url=database,
            name="cli",
            environment={
                "ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": api,
                "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "10",
                **environment,
            },
        )

    return with_settings


class Fleet:
    """A worker that consumes and holds two dispatches, one that is late, one that is dead with three waiting."""

    def __init__(self, live: StockWorker, late: StockWorker, dead: StockWorker) -> None:
        self.live, self.late, self.dead = live, late, dead


async def run_sql(database: str, statement: str, *arguments: object) -> None:
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("SET search_path TO attune, public")
        await connection.execute(statement, *arguments)
    finally:
        await connection.close()


@pytest.fixture
async def fleet(vhost: str, database: str) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(StockExecutor(vhost, database))
        live, late, dead = (StockWorker(vhost, database, name=name) for name in ("live", "late", "dead"))
        for worker in (live, late, dead):
            await stack.enter_async_context(worker)
        await live.hang()
        await late.heartbeat(age_seconds=60)
        await dead.heartbeat(age_seconds=600)
        await dead.die()
        await executor.schedule_many(2, live.id)
        await executor.schedule_many(3, dead.id)
        await eventually(lambda: len(live.held) == 2)
        yield Fleet(live, late, dead)


async def listed(process: SidecarProcess) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in await process.cli_json("workers", "list")}


async def test_live_late_and_dead_workers_are_listed_with_their_waiting_messages(
    command: Command, fleet: Fleet, database: str
) -> None:
    await run_sql(
        database, "UPDATE worker SET cordoned = true, cordon_reason = 'being replaced' WHERE name = 'late'"
    )
    await run_sql(
        database, "INSERT INTO worker (name, worker_type, worker_role) VALUES ('mute', 'local', 'action')"
    )
    await run_sql(
        database,
        "INSERT INTO worker (name, worker_type, worker_role, last_heartbeat)"
        " VALUES ('sensor', 'local', 'sensor', now())",
    )

    async def unacked_is_known() -> dict[str, dict[str, Any]] | None:
        workers = await listed(command())
        return workers if workers["live"]["unacked"] == 2 else None

    workers = await eventually(unacked_is_known, timeout=60)

    def facts(name: str, *fields: str) -> tuple[object, ...]:
        return tuple(workers[name][field] for field in fields)

    counts = ("queue_exists", "consumers", "ready", "unacked", "scheduled", "running")
    assert facts("live", "availability", *counts) == ("available", True, 1, 0, 2, 2, 0)
    assert facts("late", "availability", *counts) == ("late", True, 0, 0, 0, 0, 0)
    assert facts("dead", "availability", *counts) == ("unavailable", True, 0, 3, 0, 3, 0)
    assert facts("mute", "availability", "explanation", *counts[:4]) == (
        "unknown",
        "it never sent a heartbeat",
        None,
        None,
        None,
        None,
    )
    assert facts("sensor", "availability", "role", "queue", "queue_exists") == (
        "available",
        "sensor",
        None,
        None,
    )
    assert facts("late", "is_cordoned", "cordon_reason") == (True, "being replaced")
    assert facts("dead", "status", "queue") == ("active", worker_queue(fleet.dead.id))
    assert 600 <= workers["dead"]["heartbeat_age_seconds"] < 700

    code, out, err = await command().cli("workers", "list")
    assert (code, err) == (0, "")
    rows = {line.split("\t")[1]: line for line in out.splitlines()}
    assert "yes: being replaced" in rows["late"]
    assert f"\t{workers['dead']['last_heartbeat']}\t" in rows["dead"]
    assert workers["dead"]["last_heartbeat"].endswith("Z")
    assert "\tnever\t" in rows["mute"]
    assert rows["mute"].count("?") == 4, "hosts keep the rows of dead workers: their queues are not read"


async def test_workers_that_have_to_be_restarted_are_marked(
    command: Command, fleet: Fleet, database: str
) -> None:
    """By the looks of a leader: this command looks once."""
    # Long, so that no heartbeat becomes late while the commands run.
    cli = command(ATTUNE__WORKER__HEARTBEAT_INTERVAL="600")
    code, _, err = await cli.cli("migrate")
    assert code == 0, err
    await fleet.late.heartbeat()
    await fleet.live.heartbeat()
    await run_sql(database, "UPDATE worker SET status = 'inactive' WHERE name = 'live'")
    await run_sql(
        database,
        "INSERT INTO dlq_handler.service_observation (queue, unconsumed_since, first_heartbeat, inactive_heartbeat)"
        " VALUES ($1, now() - interval '2 min', now() - interval '1 min', NULL),"
        " ($2, NULL, NULL, now() - interval '1 min')",
        worker_queue(fleet.late.id),
        worker_queue(fleet.live.id),
    )

    async def reasons() -> tuple[dict[str, object], dict[str, str]]:
        workers = await listed(cli)
        _, out, _ = await cli.cli("workers", "list")
        cells = {line.split("\t")[1]: line.split("\t")[-1] for line in out.splitlines()[1:]}
        return {name: row["restart_reason"] for name, row in workers.items()}, cells

    unknown = dict.fromkeys(("live", "late", "dead"))
    assert await reasons() == (unknown, dict.fromkeys(unknown, "?")), "no leader has looked lately"

    await run_sql(
        database,
        "INSERT INTO dlq_handler.progress (name, until) VALUES ('service observations', clock_timestamp())",
    )
    assert await reasons() == (
        {"live": "worker_inactive", "late": "worker_without_consumer", "dead": None},
        {"live": "yes: inactive", "late": "yes: not consuming", "dead": "no"},
    )


async def test_while_a_replica_shares_its_view_no_other_server_is_asked(
    command: Command, fleet: Fleet, database: str
) -> None:
    cli = command(ATTUNE__MESSAGE_QUEUE__URL=f"amqp://127.0.0.1:{free_port()}/")
    code, _, err = await cli.cli("migrate")
    assert code == 0, err
    held = QueueObservation(consumers=1, ready=41, unacked=2)
    shared = Database(database, application_name="leader")
    view = a_view(workers=[a_worker(number=fleet.live.id, name="live", queue=held)])
    async with shared.transaction() as tx:
        at = await database_time(tx)
        parts = await encode(Observation(view=replace(view, at=at), beginnings={}))
        await share(tx, parts, at=at, interval_seconds=600, replica="leader")
    await shared.dispose()

    workers = await listed(cli)
    assert (workers["live"]["ready"], workers["live"]["unacked"]) == (41, 2)
    assert workers["late"]["ready"] is None, "it registered after the observation"
    assert (await cli.cli("workers", "list"))[2] == ""


async def test_without_a_broker_the_rest_is_listed_with_a_warning(command: Command, fleet: Fleet) -> None:
    away = command(ATTUNE__MESSAGE_QUEUE__URL=f"amqp://127.0.0.1:{free_port()}/")

    workers = await listed(away)
    assert workers["dead"]["availability"] == "unavailable"
    assert (workers["dead"]["scheduled"], workers["dead"]["queue_exists"]) == (3, None)

    code, out, err = await away.cli("workers", "list")
    assert code == 0
    assert "the state of the queues is unknown" in err
    [row] = [line for line in out.splitlines() if "\tdead\t" in line]
    assert row.split("\t")[-7:-2] == ["?", "?", "?", "3", "0"]


async def test_without_the_management_api_only_what_is_held_is_unknown(
    command: Command, fleet: Fleet
) -> None:
    no_api = command(ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL=f"http://127.0.0.1:{free_port()}")

    code, out, err = await no_api.cli("workers", "list")

    assert code == 0
    assert "UNACKED" in err
    [row] = [line for line in out.splitlines() if "\tdead\t" in line]
    assert row.split("\t")[-7:-2] == ["0", "3", "?", "3", "0"]


async def test_without_a_database_the_exit_code_says_so(command: Command) -> None:
    away = command(ATTUNE__DATABASE__URL=f"postgresql://127.0.0.1:{free_port()}/attune")

    code, out, err = await away.cli("workers", "list")

    assert (code, out) == (69, "")
    assert err.startswith("database")


async def test_help_owns_up_to_deciding_by_age_alone(command: Command) -> None:
    _, out, _ = await command().cli("workers", "list", "--help")

    assert "as the leading replica last observed them" in " ".join(out.lower().replace("│", " ").split())
    assert "the age of the heartbeat alone" in " ".join(out.replace("│", " ").split())
