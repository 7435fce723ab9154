"""`dlq-handler flows` on real servers, with no replica running: the command takes the lease and does the work."""

from typing import Any

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.database.engine import Database
from dlq_handler.host.names import EXECUTIONS_EXCHANGE
from dlq_handler.topology.blueprint import RETIRED_QUEUE
from sandbox.attune.topology import verify_redeclare
from tests.integration.topology.broker_side import keys_bound, queue_names
from tests.support.eventually import eventually
from tests.support.sidecar import Command, SidecarProcess

FIELDS = ["id", "blueprint", "params", "status", "step", "queues", "version", "since", "last_error"]
QUEUES = ["worker.7.executions", "worker.7.packs", "worker.7.cancel"]
START = ("flows", "start", "w7", "--blueprint", "worker", "--param", "id=7")
ENABLED = {
    "ATTUNE__DLQ_HANDLER__LIFECYCLE__ENABLED": "true",
    "ATTUNE__DLQ_HANDLER__LIFECYCLE__INTERVAL_SECONDS": "0.1",
    "ATTUNE__DLQ_HANDLER__LIFECYCLE__SETTLE_SECONDS": "0",
}


@pytest.fixture
async def sidecar(command: Command, vhost: str, store: Database) -> SidecarProcess:
    await verify_redeclare(vhost)
    return command(**ENABLED)


async def without_id(sidecar: SidecarProcess, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = await sidecar.cli_json(*words)
    assert list(answer) == FIELDS
    return answer


async def test_start_returns_when_all_queues_exist_and_are_bound(
    sidecar: SidecarProcess, api: ManagementApi
) -> None:
    flow = await without_id(sidecar, *START, "--comment", "a new worker")

    assert (flow["id"], flow["blueprint"], flow["params"]) == ("w7", "worker", {"id": "7"})
    assert (flow["status"], flow["step"], flow["queues"], flow["last_error"]) == (
        "active",
        None,
        QUEUES,
        None,
    )
    assert set(QUEUES) <= await queue_names(api)
    assert await keys_bound(api, QUEUES[0], EXECUTIONS_EXCHANGE) == {"execution.dispatch.worker.7"}
    assert await without_id(sidecar, "flows", "show", "w7") == flow
    assert await sidecar.cli_json("flows", "list") == [flow]
    [operation] = await sidecar.cli_json("audit", "list")
    assert (operation["action"], operation["subject"]) == ("flow.start", "flow w7")
    assert operation["comment"] == "a new worker"


async def test_the_same_id_again_is_refused(sidecar: SidecarProcess) -> None:
    await sidecar.cli_json(*START)
    code, _, err = await sidecar.cli(*START)
    assert (code, "flow 'w7' exists and is active" in err) == (1, True)


async def test_a_queue_with_other_properties_is_named_and_nothing_is_left(
    sidecar: SidecarProcess, link: AdminConnection, api: ManagementApi
) -> None:
    async with link.channel("prepare a test") as channel:
        await channel.queue_declare("worker.7.packs", durable=True, arguments={"x-message-ttl": 5})

    code, _, err = await sidecar.cli(*START)

    assert (code, "worker.7.packs" in err) == (1, True)
    assert "was not started" in err
    left = await queue_names(api)
    assert not left & {"worker.7.executions", "worker.7.cancel"}
    assert "worker.7.packs" in left, "it was there before"
    assert (await sidecar.cli_json("flows", "show", "w7"))["status"] == "stopped"


async def test_stop_deletes_the_queues_and_leads_their_keys_to_the_retired_queue(
    sidecar: SidecarProcess, api: ManagementApi
) -> None:
    started = await sidecar.cli_json(*START)
    late = await sidecar.cli("flows", "stop", "w7", "--if-version", "0")
    assert (late[0], "has changed" in late[2]) == (1, True)

    stopped = await without_id(sidecar, "flows", "stop", "w7", "--if-version", str(started["version"]))

    assert (stopped["status"], stopped["step"], stopped["last_error"]) == ("stopped", "stopped", None)
    assert not set(QUEUES) & await queue_names(api)
    assert "execution.dispatch.worker.7" in await keys_bound(api, RETIRED_QUEUE, EXECUTIONS_EXCHANGE)
    code, out, _ = await sidecar.cli("flows", "list")
    assert (code, "1 stopped flow(s) are not shown" in out) == (0, True)
    assert [one["action"] for one in await sidecar.cli_json("audit", "list")] == ["flow.stop", "flow.start"]


async def test_without_waiting_the_wish_is_on_record(sidecar: SidecarProcess, api: ManagementApi) -> None:
    await sidecar.cli_json(*START)
    flow = await sidecar.cli_json("flows", "stop", "w7", "--no-wait")
    assert (flow["status"], flow["step"]) == ("stopping", None)
    assert set(QUEUES) <= await queue_names(api), "no replica runs"
    code, out, _ = await sidecar.cli("flows", "show", "w7")
    assert (code, "signalled\tto come" in out) == (0, True)


@pytest.mark.parametrize(
    "words", [START, ("flows", "stop", "w7")], ids=lambda words: words[1] if words else ""
)
async def test_while_the_feature_is_off_it_is_refused_with_the_setting(
    command: Command, store: Database, words: tuple[str, ...]
) -> None:
    code, _, err = await command().cli(*words)
    assert (code, "dlq_handler.lifecycle.enabled is false" in err) == (1, True)
    assert await command().cli_json("flows", "list") == []


async def test_what_cannot_be_started_or_stopped_is_said(sidecar: SidecarProcess) -> None:
    for words, text in (
        (
            ("flows", "start", "w7", "--blueprint", "wroker"),
            "unknown blueprint 'wroker': must be one of worker",
        ),
        (("flows", "start", "w7", "--blueprint", "worker"), "missing parameter 'id'"),
        (("flows", "stop", "w9"), "there is no flow 'w9'"),
        (("flows", "show", "w9"), "there is no flow 'w9'"),
    ):
        code, _, err = await sidecar.cli(*words)
        assert (code, text in err) == (1, True), err
    for mistyped in ((*START, "--param", "id=8"), (*START[:-1], "7")):
        assert (await sidecar.cli(*mistyped))[0] == 2


async def test_a_running_replica_does_the_work_and_the_command_waits_for_it(
    sidecar: SidecarProcess, api: ManagementApi
) -> None:
    await sidecar.start()
    try:

        async def leads() -> bool:
            return (await sidecar.metrics())["dlq_handler_leader"] == 1

        await eventually(leads, timeout=60)
        started = await sidecar.cli_json(*START)
        stopped = await sidecar.cli_json("flows", "stop", "w7")
    finally:
        await sidecar.kill()

    assert (started["status"], stopped["status"]) == ("active", "stopped")
    assert not set(QUEUES) & await queue_names(api)
    [by_replica] = sidecar.events("flow.started")
    assert (by_replica["flow"], len(sidecar.events("flow.stopped"))) == ("w7", 1)
