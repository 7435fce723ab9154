"""`topology plan`, `topology apply --plan` and `topology show` as an operator runs them."""

import json
from pathlib import Path

from dlq_handler.broker.admin.admin_connection import AdminConnection
from sandbox.attune.topology import verify_redeclare
from sandbox.servers.ports import free_port
from tests.support.host_tables import Host
from tests.support.sidecar import Command

NO_API = f"http://guest:guest@127.0.0.1:{free_port()}"


async def test_a_plan_is_applied_as_it_was_shown(
    command: Command, host: Host, vhost: str, tmp_path: Path
) -> None:
    worker = await host.add_worker()
    file = tmp_path / "plan.json"
    sidecar = command()

    code, out, err = await sidecar.cli("topology", "plan", "--out", str(file))
    assert (code, err) == (0, "")
    assert "declare\tqueue\tattune.dlx.queue\tabsent" in out.splitlines()
    key = f"execution.dispatch.worker.{worker}"
    assert f"bind\tbinding\tattune.dlx -> attune.dlx.queue: {key}\tabsent" in out.splitlines()
    assert "guest" not in file.read_text(), "no credentials"

    await host.add_worker()
    applied = await sidecar.cli_json("topology", "apply", "--plan", str(file))
    assert "attune.dlx.queue" in applied["made"]
    assert applied["bound"] == [key], "a worker that registered since is not in the plan"
    await verify_redeclare(vhost)

    code, _, err = await sidecar.cli("topology", "apply", "--plan", str(file))
    assert code == 1
    assert "The queue attune.dlx.queue has changed: absent when planned, no arguments now." in err
    assert "run `dlq-handler topology plan` again" in err


async def test_a_changed_broker_refuses_the_plan_and_nothing_is_changed(
    command: Command, host: Host, vhost: str, link: AdminConnection, tmp_path: Path
) -> None:
    await host.add_worker()
    await verify_redeclare(vhost)
    file = tmp_path / "plan.json"
    sidecar = command()
    await sidecar.cli("topology", "plan", "--out", str(file))
    async with link.channel("change the broker") as channel:
        await channel.queue_delete("attune.dlx.queue")

    code, _, err = await sidecar.cli("topology", "apply", "--plan", str(file))

    assert code == 1
    assert "The queue attune.dlx.queue has changed: no arguments when planned, absent now." in err
    rows = {row["name"]: row for row in await sidecar.cli_json("queues", "list")}
    assert rows["attune.dlx.queue"]["exists"] is False


async def test_a_plan_by_amqp_alone_can_be_applied(
    command: Command, host: Host, vhost: str, tmp_path: Path
) -> None:
    worker = await host.add_worker()
    await verify_redeclare(vhost)
    file = tmp_path / "plan.json"
    sidecar = command(ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL=NO_API)
    code, out, err = await sidecar.cli("topology", "plan", "--out", str(file), "--output", "json")
    assert code == 0
    assert "bindings are unknown" in err
    assert {entry["found"] for entry in json.loads(out)["entries"] if entry["kind"] == "binding"} == {
        "unknown"
    }
    applied = await sidecar.cli_json("topology", "apply", "--plan", str(file))
    assert applied["bound"] == [f"execution.dispatch.worker.{worker}"]


async def test_a_file_that_is_no_plan_is_refused(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("{}")
    for name, reason in ((str(file), "it is no plan"), (f"{file}.missing", "No such file")):
        code, _, err = await command().cli("topology", "apply", "--plan", name)
        assert code == 2
        assert reason in err


async def test_show_has_owners_and_states(command: Command, vhost: str, link: AdminConnection) -> None:
    await verify_redeclare(vhost)
    async with link.channel("change the broker") as channel:
        await channel.queue_delete("attune.enforcements.queue")
    sidecar = command()

    _, out, _ = await sidecar.cli("topology", "show", "--format", "json")
    code, table, _ = await sidecar.cli("topology", "show")

    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["attune.enforcements.queue"] == {
        "kind": "queue",
        "name": "attune.enforcements.queue",
        "owner": "executor",
        "wanted": "x-dead-letter-exchange=attune.dlx",
        "found": "absent",
    }
    assert rows["attune.events -> attune.events.queue: #"]["found"] == "present"
    assert code == 0
    assert "queue\tattune.dlx.queue\tcommon\tno arguments\tno arguments" in table.splitlines()
