"""What the README tells a reader to type does what it says there: every command of its blocks is taken from it and run.

The demo has tests of its own (test_demo.py), and `./run test` is what runs this test: of these two only their
place in the README, and in what they are run by, is held here.
"""

import asyncio
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from dlq_handler.sandbox.attune.completion_listener import CompletionListener
from dlq_handler.sandbox.attune.scheduler import Scheduler
from dlq_handler.sandbox.attune.worker import StockWorker
from dlq_handler.sandbox.servers import RabbitMQ
from dlq_handler.sandbox.servers.ports import free_port
from dlq_handler.sandbox.surroundings import surroundings
from tests.acceptance.conftest import World
from tests.support.demo import DEMO
from tests.support.eventually import eventually

ROOT = Path(__file__).parents[2]

# The exit code that the README itself speaks of; every other command must succeed.
OTHER_EXITS = {"dlq-handler topology check": 1, "dlq-handler status": 1}


def blocks() -> list[list[str]]:
    """The commands of each sh block, without their comments."""
    found = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [
        [" ".join(shlex.split(line, comments=True)) for line in block.splitlines() if line] for block in found
    ]


def test_first_block_is_what_demo_test_and_ci_run() -> None:
    assert blocks()[0] == ["./run demo", "./run test"]
    assert [str(ROOT / "run"), "demo"] == DEMO
    assert "timed ./run test\n" in (ROOT / ".ci" / "run").read_text()


def test_commands_in_the_text_are_known_to_run() -> None:
    known = (ROOT / "run").read_text()
    named = set(re.findall(r"`\./run ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named
    assert [name for name in named if not re.search(rf"^    .*\b{name}\b.*\)$", known, re.MULTILINE)] == []


@pytest.mark.timeout(300)
async def test_tour_does_what_it_says(world: World, rabbitmq: RabbitMQ) -> None:
    _, before, during = blocks()
    port = free_port()
    environment = surroundings(
        {
            "ATTUNE__DATABASE__URL": world.database_url,
            "ATTUNE__MESSAGE_QUEUE__URL": world.amqp_url,
            "ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": rabbitmq.management_url,
            "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(port),
            "ATTUNE__DLQ_HANDLER__UI__PORT": "0",
            # As after `export PATH`.
            "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
    )
    worker = await world.vanished_worker()
    setup, *exports, config_check, topology_check, run = before
    assert setup.startswith("./run setup && export PATH=")
    assert {export.split("=")[0] for export in exports} == {
        "export ATTUNE__DATABASE__URL",
        "export ATTUNE__MESSAGE_QUEUE__URL",
    }
    await typed("./run setup", environment)
    await typed(config_check, environment)
    await typed(topology_check, environment)

    assert run == "dlq-handler run"
    with (world.folder / "run.log").open("wb") as log:
        sidecar = await asyncio.create_subprocess_exec(
            *shlex.split(run), stdout=log, stderr=log, cwd=ROOT, env=environment
        )
    try:
        await eventually(lambda: answers(port), timeout=60)
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        await world.all_ended([dispatch])
        [letter] = await world.sql("SELECT id FROM dlq_handler.letter")
        of_this_world = {
            "show 17": f"show {letter['id']}",
            "4711": str(dispatch.execution_id),
            "localhost:9464": f"127.0.0.1:{port}",
        }
        assert all(any(name in command for command in during) for name in of_this_world)
        # By its age, not by how long the commands before took: the status must know that it is gone.
        await world.sql(
            "UPDATE worker SET last_heartbeat = now() - interval '10 minutes' WHERE id = $1", worker.id
        )
        # The doctor is content only where the executor listens and a worker lives; the status misses the other one.
        async with (
            Scheduler(world.amqp_url, world.database_url),
            CompletionListener(world.amqp_url, world.database_url),
            StockWorker(world.amqp_url, world.database_url, name="lives", heartbeat_seconds=1) as lives,
        ):
            await lives.consume()
            for command in during:
                for name, real in of_this_world.items():
                    command = command.replace(name, real)  # noqa: PLW2901  # one after the other
                await typed(command, environment)
        sidecar.terminate()
        assert await asyncio.wait_for(sidecar.wait(), 60) == 0
    finally:
        if sidecar.returncode is None:
            sidecar.kill()
            await sidecar.wait()


async def typed(command: str, environment: Mapping[str, str]) -> None:
    program, *arguments = shlex.split(command)
    if program == "curl":  # not on every machine, and only its address is ours
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://{arguments[0]}")).status_code == 200, command
        return
    process = await asyncio.create_subprocess_exec(
        program if "/" not in program else str(ROOT / program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env=environment,
    )
    async with asyncio.timeout(180):
        out, _ = await process.communicate()
    assert process.returncode == OTHER_EXITS.get(command, 0), f"{command}\n{out.decode()}"


async def answers(port: int) -> bool:
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
    except httpx.TransportError:
        return False
