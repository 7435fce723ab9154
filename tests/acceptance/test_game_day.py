"""A game day against a running sidecar, as an operator holds one: from outside, and nothing is left but evidence."""

import asyncio
import json
import signal
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest

from dlq_handler.sandbox.servers import RabbitMQ
from tests.acceptance.conftest import World
from tests.support.eventually import eventually
from tests.support.least_rights import as_user, least_rights
from tests.support.sidecar import SidecarProcess, sidecar_process

HOLD = ("game-day", "--yes", "--ttl", "1s")
QUEUE = "worker.-1.executions"
KEY = "execution.dispatch.worker.-1"


async def traces(world: World, rabbitmq: RabbitMQ) -> set[str]:
    """Whatever of a game day is left in the broker: queues by name, bindings by key."""
    vhost = urlsplit(world.amqp_url).path.removeprefix("/")
    queues = (await rabbitmq.ask("GET", f"queues/{vhost}?disable_stats=true")).json()
    bindings = (await rabbitmq.ask("GET", f"bindings/{vhost}")).json()
    names = {queue["name"] for queue in queues} & {QUEUE, "dlq_handler.game_day.queue"}
    return names | {
        f"{one['destination']} {one['routing_key']}" for one in bindings if "worker.-1" in str(one)
    }


async def counted(sidecar: SidecarProcess) -> dict[str, float]:
    """Every counter and every histogram of ours, but for those of the process itself."""
    return {
        sample: value
        for sample, value in (await sidecar.metrics()).items()
        if (name := sample.partition("{")[0]).startswith("dlq_handler_")
        if name.endswith(("_total", "_bucket", "_count", "_sum"))
        if not name.startswith(("dlq_handler_loop_lag", "dlq_handler_sweep", "dlq_handler_reconnects"))
    }


async def test_a_lost_dispatch_is_rescued_and_only_evidence_stays(world: World, rabbitmq: RabbitMQ) -> None:
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        before = await counted(sidecar)
        told = await sidecar.cli_json(*HOLD, "--svg", "line.svg")

        assert told["conclusion"] == "rescued"
        assert [step["name"] for step in told["steps"]] == ["dispatched", "expired", "judged", "announced"]
        number = told["execution_id"]
        [row] = await world.sql("SELECT status::text, worker, action_ref, result FROM execution")
        assert (row["status"], row["worker"], row["action_ref"]) == ("failed", None, "dlq_handler.game_day")
        assert json.loads(row["result"])["error"] == "Worker queue TTL expired"
        assert await world.auditor.notice_counts() == {number: 1}
        [letter] = await world.sql("SELECT id, outcome, worker_id, evidence FROM dlq_handler.letter")
        assert (letter["id"], letter["outcome"], letter["worker_id"]) == (told["letter_id"], "failed", -1)
        assert json.loads(letter["evidence"])["x_death"]["count"] == 1
        drawn = ET.parse(world.folder / "line.svg").getroot()
        assert drawn.tag.endswith("svg")

        assert await traces(world, rabbitmq) == set()
        # Marked, the notice has been through all that could have counted it.
        await eventually(lambda: world.sql("SELECT 1 FROM dlq_handler.outbox WHERE confirmed_at IS NOT NULL"))
        assert len(before) > 150
        assert await counted(sidecar) == before
        assert await world.sql("SELECT 1 FROM dlq_handler.change_count") == [], "the brake's count"


async def test_without_yes_it_says_what_it_would_do_and_without_a_sidecar_why_it_is_in_vain(
    world: World, rabbitmq: RabbitMQ
) -> None:
    async with sidecar_process(world.folder, world.amqp_url, world.database_url, start=False) as nobody:
        await nobody.cli("migrate")

        code, out, err = await nobody.cli("game-day")
        assert (code, "add --yes" in err) == (64, True)
        assert QUEUE in out

        code, out, _ = await nobody.cli(*HOLD)
        assert code == 1
        assert "nobody takes letters from 'attune.dlx.queue'" in out
        assert "start a sidecar (`dlq-handler run`)" in out

        assert await traces(world, rabbitmq) == set()
        assert await world.sql("SELECT 1 FROM execution") == []


async def begun(sidecar: SidecarProcess) -> asyncio.subprocess.Process:
    """One that has dispatched, and waits."""
    process = await sidecar.begin("game-day", "--yes", "--ttl", "10m")
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert b"dispatched" in await process.stdout.readline()
    return process


async def ended(process: asyncio.subprocess.Process, number: signal.Signals) -> int:
    process.send_signal(number)
    async with asyncio.timeout(60):
        return await process.wait()


async def test_what_an_interrupted_one_made_is_gone_and_what_a_killed_one_left_the_next_removes(
    world: World, rabbitmq: RabbitMQ
) -> None:
    async with sidecar_process(world.folder, world.amqp_url, world.database_url) as sidecar:
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            assert await ended(await begun(sidecar), number) == code
            assert await traces(world, rabbitmq) == set()

        killed = await begun(sidecar)
        code, _, err = await sidecar.cli(*HOLD)
        assert (code, "another game day is being held" in err) == (2, True)
        await ended(killed, signal.SIGKILL)
        await eventually(lambda: _is_free(world, rabbitmq))
        assert QUEUE in await traces(world, rabbitmq)

        code, out, _ = await sidecar.cli(*HOLD)
        assert (code, f"left queue '{QUEUE}' behind: removed" in out) == (0, True), out
        assert await traces(world, rabbitmq) == set()


async def _is_free(world: World, rabbitmq: RabbitMQ) -> bool:
    return "dlq_handler.game_day.queue" not in await traces(world, rabbitmq)


async def test_the_rights_that_grants_prints_for_it_are_enough_and_without_them_it_names_them(
    world: World, rabbitmq: RabbitMQ
) -> None:
    async with (
        sidecar_process(
            world.folder,
            as_user(world.amqp_url),
            as_user(world.database_url),
            start=False,
            intake__queue="attune.dlx.sidecar.queue",
        ) as sidecar,
        least_rights(world, rabbitmq, sidecar, "--game-day"),
    ):
        await sidecar.start()
        told: Any = await sidecar.cli_json(*HOLD)
        assert told["conclusion"] == "rescued"
        assert await traces(world, rabbitmq) == set()
        await world.sql("REVOKE INSERT (action_ref, config, status) ON execution FROM least")

        code, out, err = await sidecar.cli(*HOLD)

        assert (code, "an administrator has to allow it first" in err) == (2, True)
        assert out.splitlines() == [
            'GRANT INSERT ("action_ref", "config", "status") ON "attune"."execution" TO "least";',
            'GRANT USAGE ON SEQUENCE "attune"."execution_id_seq" TO "least";',
        ]


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("ATTUNE__DLQ_HANDLER__SHADOW__ENABLED", "true", "in shadow mode nothing is ended"),
        ("ATTUNE__MESSAGE_QUEUE__RABBITMQ__DEAD_LETTER__ENABLED", "false", "no letters are taken"),
    ],
)
async def test_where_nothing_can_be_rescued_it_says_so_at_once(
    world: World, variable: str, value: str, says: str
) -> None:
    async with sidecar_process(
        world.folder, world.amqp_url, world.database_url, start=False, **{variable: value}
    ) as off:
        code, _, err = await off.cli(*HOLD)
        assert (code, says in err) == (2, True), err
