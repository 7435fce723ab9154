"""`dlq-handler queues orphans` and `queues retire` on real servers, with no replica running."""

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.database.engine import Database
from sandbox.attune.topology import verify_redeclare
from tests.integration.cli.test_flows import ENABLED
from tests.integration.topology.broker_side import queue_names
from tests.support.host_tables import Host
from tests.support.sidecar import Command, SidecarProcess

GONE = {f"worker.9000.{name}" for name in ("executions", "packs", "cancel")}


@pytest.fixture
async def sidecar(command: Command, vhost: str, host: Host, store: Database) -> SidecarProcess:
    """Worker 9000 has queues and no row; another worker reports."""
    worker = await host.add_worker()
    await verify_redeclare(vhost, {9000: 300_000, worker: 300_000})
    return command(**ENABLED)


async def live_queue(sidecar: SidecarProcess) -> str:
    rows = await sidecar.cli_json("queues", "orphans")
    kept = (row["name"] for row in rows if not row["is_orphan"])
    return str(next(name for name in kept if name.endswith("executions")))


async def test_orphans_are_listed_with_the_reason_and_the_others_with_why_not(
    sidecar: SidecarProcess,
) -> None:
    rows = await sidecar.cli_json("queues", "orphans")

    assert list(rows[0]) == ["name", "worker_id", "is_orphan", "ready", "consumers", "why", "why_not"]
    assert {row["name"] for row in rows if row["is_orphan"]} == GONE
    assert {row["why"] for row in rows if row["is_orphan"]} == {"the worker has no row"}
    assert all("last heartbeat" in row["why_not"][0] for row in rows if not row["is_orphan"])
    code, out, _ = await sidecar.cli("queues", "orphans")
    assert (code, "worker.9000.packs\t9000\tyes\t0\tthe worker has no row" in out) == (0, True)


async def test_a_worker_that_is_gone_is_retired_and_what_was_in_its_queues_is_on_record(
    sidecar: SidecarProcess, link: AdminConnection, api: ManagementApi
) -> None:
    async with link.channel("prepare a test") as channel:
        await channel.basic_publish(b"{}", routing_key="worker.9000.packs")
    refused = await sidecar.cli("queues", "retire", "worker.9000.packs")
    assert (refused[0], "add --yes" in refused[2], "worker.9000.executions" in refused[2]) == (1, True, True)
    assert await queue_names(api) >= GONE

    [flow] = await sidecar.cli_json(
        "queues", "retire", "worker.9000.packs", "--yes", "--comment", "scaled in"
    )

    assert (flow["id"], flow["status"], set(flow["queues"])) == ("worker-9000", "stopped", GONE)
    assert not GONE & await queue_names(api)
    [letter] = await sidecar.cli_json("letters", "list")
    assert letter["outcome"] == "archived"
    [operation] = await sidecar.cli_json("audit", "list")
    assert (operation["action"], operation["subject"]) == ("queues.retire", "worker 9000")
    assert operation["comment"] == "scaled in"


async def test_a_queue_that_is_no_orphan_is_refused_with_the_reason(
    sidecar: SidecarProcess, api: ManagementApi
) -> None:
    name = await live_queue(sidecar)
    code, _, err = await sidecar.cli("queues", "retire", name, "--yes")
    assert (code, "is no orphan: the last heartbeat of the worker" in err) == (1, True)
    unknown = await sidecar.cli("queues", "retire", "attune.dlx.queue", "--yes")
    assert (unknown[0], "is no queue of a worker" in unknown[2]) == (1, True)
    assert name in await queue_names(api)
    assert await sidecar.cli_json("audit", "list") == []


async def test_all_retires_orphans_only(sidecar: SidecarProcess, api: ManagementApi) -> None:
    name = await live_queue(sidecar)
    flows = await sidecar.cli_json("queues", "retire", "--all", "--yes")
    assert [flow["id"] for flow in flows] == ["worker-9000"]
    left = await queue_names(api)
    assert (name in left, GONE & left) == (True, set())
    assert await sidecar.cli_json("queues", "retire", "--all", "--yes") == []


async def test_while_the_feature_is_off_only_the_list_works(
    command: Command, vhost: str, store: Database, api: ManagementApi
) -> None:
    await verify_redeclare(vhost, {9000: 300_000})
    code, _, err = await command().cli("queues", "retire", "--all", "--yes")
    assert (code, "dlq_handler.lifecycle.enabled is false" in err) == (1, True)
    assert {row["name"] for row in await command().cli_json("queues", "orphans")} == GONE
    assert await queue_names(api) >= GONE
    assert (await command().cli("queues", "retire", "--yes"))[0] == 2
