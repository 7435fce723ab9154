"""`dlq-handler queues list` on a real broker: with the management API, by AMQP alone, without the database."""

from typing import Any

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.database.engine import Database
from dlq_handler.host.owners import SYSTEM_QUEUES
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import FlowStatus
from dlq_handler.lifecycle.queue_list import KnownQueue, OwnerKind, QueueStatus
from dlq_handler.lifecycle.queue_lister import MAX_REFUSALS, list_queues
from sandbox.attune.topology import verify_redeclare
from sandbox.servers.ports import free_port
from tests.support.host_tables import Host
from tests.support.sidecar import Command
from tests.unit.lifecycle.builders import a_flow

NO_API = f"http://guest:guest@127.0.0.1:{free_port()}"


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


async def put(link: AdminConnection, queue: str, count: int = 1, **arguments: Any) -> None:
    async with link.channel("prepare a test") as channel:
        if arguments:
            await channel.queue_declare(queue, durable=True, arguments=arguments)
        for _ in range(count):
            await channel.basic_publish(b"{}", routing_key=queue)
        await channel.queue_declare(queue, passive=True)


async def test_every_queue_of_the_vhost_has_a_row_with_its_owner(
    command: Command, vhost: str, host: Host, link: AdminConnection
) -> None:
    worker = await host.add_worker()
    await verify_redeclare(vhost, {worker: 300_000, worker + 1: 300_000})
    await put(link, f"worker.{worker}.executions", 2)
    await put(link, "another.system", **{"x-max-length": 9})

    rows = by_name(await command().cli_json("queues", "list"))

    assert rows[f"worker.{worker}.executions"] == {
        "name": f"worker.{worker}.executions",
        "owner_kind": "service",
        "owner": f"worker {worker}",
        "exists": True,
        "arguments": {"x-dead-letter-exchange": "attune.dlx", "x-message-ttl": 300_000},
        "ready": 2,
        "consumers": 0,
        "status": "ok",
        "explanation": None,
    }
    assert rows[f"worker.{worker + 1}.packs"]["owner"] == f"worker {worker + 1}", "it has no row"
    other = rows["another.system"]
    assert (other["owner_kind"], other["owner"], other["arguments"]) == ("other", None, {"x-max-length": 9})
    for queue in SYSTEM_QUEUES:
        row = rows[queue.name]
        assert (row["owner_kind"], row["owner"], row["status"]) == ("service", queue.service, "ok")


async def test_a_system_queue_that_is_missing_or_declared_otherwise_is_reported(
    command: Command, vhost: str, link: AdminConnection
) -> None:
    await verify_redeclare(vhost)
    async with link.channel("prepare a test") as channel:
        await channel.queue_delete("attune.enforcements.queue")
        await channel.queue_delete("attune.inquiry.responses.queue")
        await channel.queue_declare("attune.inquiry.responses.queue", durable=True)

    code, out, _ = await command().cli("queues", "list")

    assert code == 0
    lines = {line.split("\t")[0]: line.split("\t")[-1] for line in out.splitlines() if "\t" in line}
    assert lines["attune.enforcements.queue"] == "missing"
    assert lines["attune.inquiry.responses.queue"] == "differs"
    assert "executor declares it with other arguments: x-dead-letter-exchange is not set" in out
    assert "dlq_handler.retired.queue" not in lines, "a queue that need not exist is left out of the table"


async def test_without_the_management_api_known_queues_are_asked_about_by_name(
    command: Command, vhost: str, host: Host, link: AdminConnection
) -> None:
    worker = await host.add_worker()
    await verify_redeclare(vhost, {worker: 300_000})
    await put(link, "another.system", **{"x-max-length": 9})
    sidecar = command(ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL=NO_API)

    rows = by_name(await sidecar.cli_json("queues", "list"))
    _, _, err = await sidecar.cli("queues", "list")

    assert rows["attune.enforcements.queue"]["arguments"] == {"x-dead-letter-exchange": "attune.dlx"}
    assert rows["attune.dlx.queue"]["arguments"] == {}
    assert rows[f"worker.{worker}.cancel"]["exists"] is True
    assert "another.system" not in rows
    assert "AMQP cannot list queues" in err
    assert "dlq_handler.broker.management_url" in err


async def test_without_the_database_the_broker_still_lists(command: Command, vhost: str) -> None:
    await verify_redeclare(vhost, {7: 300_000})
    sidecar = command(ATTUNE__DATABASE__URL=f"postgresql://x@127.0.0.1:{free_port()}/x")
    code, out, err = await sidecar.cli("queues", "list")
    assert code == 0
    assert "worker.7.packs" in out
    assert "the queues of flows are unknown" in err


async def test_without_the_broker_the_command_fails(command: Command) -> None:
    sidecar = command(ATTUNE__MESSAGE_QUEUE__URL=f"amqp://guest:guest@127.0.0.1:{free_port()}/x")
    code, _, err = await sidecar.cli("queues", "list")
    assert code == 69
    assert "nothing listens there" in err


async def test_the_queues_of_a_flow_belong_to_it(
    command: Command, vhost: str, store: Database, link: AdminConnection
) -> None:
    await verify_redeclare(vhost, {7: 300_000})
    async with store.transaction() as tx:
        await flows_sql.add(tx, a_flow(id="orders", status=FlowStatus.ACTIVE))
    async with link.channel("change the broker") as channel:
        await channel.queue_delete("worker.7.packs")
    rows = by_name(await command().cli_json("queues", "list"))
    executions, packs = rows["worker.7.executions"], rows["worker.7.packs"]
    assert (executions["owner_kind"], executions["owner"], executions["status"]) == ("flow", "orders", "ok")
    assert (packs["owner"], packs["exists"], packs["status"]) == ("orders", False, "missing")


@pytest.mark.parametrize("missing", [MAX_REFUSALS - 1, MAX_REFUSALS + 20])
async def test_by_amqp_the_budget_of_refused_questions_is_kept(link: AdminConnection, missing: int) -> None:
    """Each leaves error lines in the broker's log, and a host keeps the rows of unavailable workers for ever."""
    asked = 0

    class Counting(AdminConnection):
        def channel(self, doing: str, *, timeout_seconds: float | None = None) -> Any:
            nonlocal asked
            asked += 1
            return link.channel(doing, timeout_seconds=timeout_seconds)

        async def open(self) -> int:
            return await link.open()

    await put(link, "there", 1, **{"x-max-length": 9})
    names = ["there", *(f"gone.{number}" for number in range(missing))]
    known = [KnownQueue(name=name, owner_kind=OwnerKind.SERVICE, owner="executor") for name in names]
    found = await list_queues(
        Counting(link._address), ManagementApi(NO_API, vhost="/"), known, recognize=lambda _: None
    )

    rows = {row.name: row for row in found.rows}
    absent = [row for row in found.rows if row.status is QueueStatus.ABSENT]
    unknown = [row for row in found.rows if row.status is QueueStatus.UNKNOWN]
    assert (len(absent), len(unknown)) == (min(missing, MAX_REFUSALS), max(0, missing - MAX_REFUSALS))
    assert all("leaves error lines in the broker's log" in (row.explanation or "") for row in unknown)
    assert (rows["there"].ready, rows["there"].arguments) == (1, None)
    assert "its arguments are unknown" in (rows["there"].explanation or "")
    assert asked <= MAX_REFUSALS + 10
