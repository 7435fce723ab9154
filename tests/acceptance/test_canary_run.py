"""`dlq-handler canary run`, as an operator types it beside running replicas."""

import asyncio
import json
import signal
from typing import Any
from urllib.parse import urlsplit

from sandbox.attune import topology
from sandbox.servers import RabbitMQ
from tests.acceptance.test_canary import a_sidecar, unbind
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.stock_world import StockWorld

# The replicas send no canary of their own while the test lasts.
QUIET = {"canary__interval_seconds": "3600"}


async def counted(sidecar: SidecarProcess) -> dict[str, float]:
    """Every counter and histogram but those of canaries and of the process itself."""
    return {
        sample: value
        for sample, value in (await sidecar.metrics()).items()
        if (name := sample.partition("{")[0]).startswith("dlq_handler_")
        if name.endswith(("_total", "_bucket", "_count", "_sum"))
        if not name.startswith(
            ("dlq_handler_canar", "dlq_handler_loop_lag", "dlq_handler_scan", "dlq_handler_reconnects")
        )
    }


async def queues_and_bindings(world: StockWorld, rabbitmq: RabbitMQ) -> tuple[set[str], set[tuple[str, str]]]:
    vhost = urlsplit(world.amqp_url).path.removeprefix("/")
    queues = (await rabbitmq.ask("GET", f"queues/{vhost}?disable_stats=true")).json()
    bindings = (await rabbitmq.ask("GET", f"bindings/{vhost}")).json()
    # The replicas' own check of the broker comes and goes.
    names = {queue["name"] for queue in queues if "publish_check" not in queue["name"]}
    return names, {
        (one["destination"], one["routing_key"]) for one in bindings if one["destination"] in names
    }


async def test_every_stage_is_reported_and_nothing_but_the_canary_knows_of_it(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    first, second = [await world.lost_worker(name, ttl_ms=60_000) for name in ("one", "two")]
    async with a_sidecar(world, rabbitmq, "one", **QUIET) as one, a_sidecar(world, rabbitmq, "two", **QUIET):
        code, out, err = await one.cli("canary", "run", "--count", "2")
        assert code == 0, out + err
        lines = out.splitlines()
        assert lines[0].split("\t") == [
            "WORKER", "STAGE", "CONFIRMED", "EXPIRED", "RECEIVED", "REPLICA", "PROBLEM",
        ]  # fmt: skip
        assert [line.split("\t")[1] for line in lines[1:3]] == ["received", "received"]
        assert lines[-1].startswith("conclusion: arrived: 2 of 2 canaries arrived within ")
        assert "Canaries sent: 2. Waiting up to 3.2 s for them." in err

        before, things = await counted(one), await queues_and_bindings(world, rabbitmq)
        report = await one.cli_json("canary", "run", "--count", "20")
        assert await counted(one) == before
        assert await queues_and_bindings(world, rabbitmq) == things
        assert_shape(report)
        assert (report["conclusion"], report["problem"], report["action"]) == ("arrived", None, None)
        assert (report["queue"], report["ttl_seconds"], report["limit_seconds"]) == (
            topology.DLX_QUEUE,
            0.2,
            3.0,
        )
        canaries = report["canaries"]
        # In turn. Which of the two is first depends on a run before: both got their canary at the same moment.
        in_turn = [canary["worker_id"] for canary in canaries]
        assert set(in_turn[:2]) == {first.id, second.id}
        assert in_turn == in_turn[:2] * 10
        assert {canary["received_by"] for canary in canaries} <= {"one", "two"}
        assert all(
            canary["confirmed_seconds"] <= canary["expired_seconds"] <= canary["received_seconds"]
            for canary in canaries
        )

        await unbind(world, second.id)

        async def names_the_route() -> dict[str, Any]:
            code, out, _ = await one.cli("canary", "run", "--count", "2", "--limit", "2s", "--output", "json")
            report: dict[str, Any] = json.loads(out)
            assert_shape(report)
            assert (code, report["conclusion"]) == (1, "not_arrived"), out
            # The management API lists consumers late. Before that the answer is `unidentified_consumer`.
            assert report["problem"] == "broken_route", out
            return report

        report = await eventually(names_the_route, timeout=60)
        stages = {canary["worker_id"]: canary["stage"] for canary in report["canaries"]}
        assert stages == {first.id: "received", second.id: "expired"}
    assert await world.outcomes() == {}
    assert await world.sql("SELECT 1 FROM dlq_handler.outbox") == []


async def test_ctrl_c_leaves_no_queue_and_no_binding_behind(world: StockWorld, rabbitmq: RabbitMQ) -> None:
    await world.lost_worker(ttl_ms=60_000)
    async with a_sidecar(world, rabbitmq, **QUIET | {"canary__ttl_ms": "60000"}) as sidecar:
        before = await queues_and_bindings(world, rabbitmq)
        process = await sidecar.begin("canary", "run")
        assert process.stderr is not None
        async with asyncio.timeout(60):
            assert b"Canaries sent: 20" in await process.stderr.readline()
            process.send_signal(signal.SIGINT)
            printed, error = await process.communicate()
        assert (process.returncode, printed) == (130, b"")
        assert b"Interrupted" in error
        names, bindings = await queues_and_bindings(world, rabbitmq)
        own = {"dlq_handler.canary.queue"}
        assert names - own == before[0] - own
        assert {one for one in bindings ^ before[1] if one[0] not in own} == set()


def assert_shape(report: dict[str, Any]) -> None:
    """The fields of the JSON, which scripts rely on."""
    assert list(report) == [
        "conclusion", "problem", "explanation", "action", "queue", "sent_at", "ttl_seconds", "limit_seconds",
        "canaries",
    ]  # fmt: skip
    for canary in report["canaries"]:
        assert list(canary) == [
            "id", "worker_id", "stage", "problem", "confirmed_seconds", "expired_seconds", "received_seconds",
            "received_by", "error",
        ]  # fmt: skip
