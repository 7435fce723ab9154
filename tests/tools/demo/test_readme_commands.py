"""Every command of the README's blocks does what the README says: it is read from there and run.

The demo has its own tests (test_demo.py), and `./run test all` runs this one: of these two only their
place in the README and in .ci/run is checked here.
"""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import aio_pika
import httpx
import pytest

from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.worker import StockWorker
from sandbox.clean_environment import clean_environment
from sandbox.servers import RabbitMQ
from sandbox.servers.ports import free_port
from tests.support.demo import DEMO
from tests.support.eventually import eventually
from tests.support.stock_world import StockWorld

ROOT = Path(__file__).parents[3]

STOCK_QUEUE = "attune.dlx.queue"
OWN_QUEUE = "attune.dlx.sidecar.queue"


def blocks() -> list[list[str]]:
    """The commands of each sh block, without their comments."""
    found = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [
        [" ".join(shlex.split(line, comments=True)) for line in block.splitlines() if line] for block in found
    ]


def test_first_block_is_what_demo_test_and_ci_run() -> None:
    assert blocks()[0] == ["./run demo", "./run test"]
    assert [str(ROOT / "run"), "demo"] == DEMO
    assert "timed ./run test all\n" in (ROOT / ".ci" / "run").read_text()


def test_commands_in_the_text_are_known_to_run() -> None:
    known = (ROOT / "run").read_text()
    named = set(re.findall(r"`\./run ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named
    assert [name for name in named if not re.search(rf"^    .*\b{name}\b.*\)$", known, re.MULTILINE)] == []


def exported(commands: Sequence[str]) -> dict[str, str]:
    """The variables that these lines set."""
    pairs = (
        command.removeprefix("export ").partition("=")
        for command in commands
        if command.startswith("export ")
    )
    return {name: value for name, _, value in pairs}


@pytest.mark.timeout(400)
async def test_tour_does_what_it_says(world: StockWorld, rabbitmq: RabbitMQ) -> None:
    _, before, compare, switch_on, during = blocks()
    port = free_port()
    setup, *exports, config_check, doctor, run = before
    assert setup.startswith("./run setup && export PATH=")
    chosen = exported(exports)
    environment = clean_environment(
        chosen
        | {
            "ATTUNE__DATABASE__URL": world.database_url,
            "ATTUNE__MESSAGE_QUEUE__URL": world.amqp_url,
            "ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": rabbitmq.management_url,
            "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(port),
            "ATTUNE__DLQ_HANDLER__UI__PORT": "0",
            # So long a replica watches before it reports a worker as unavailable.
            "ATTUNE__DLQ_HANDLER__WORKER__UNAVAILABLE_AFTER_SECONDS": "15",
            # As after `export PATH`.
            "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
    )
    worker = await world.lost_worker()
    await typed("./run setup", environment)
    await typed(config_check, environment)
    await typed(doctor, environment, code=1)

    async with running(run, world, environment):
        await eventually(lambda: answers(port), timeout=60)
        [watched] = await world.executor.schedule_many(1, worker.id)

        async def is_on_record() -> bool:
            return await world.outcomes() == {"failed": 1}

        await eventually(is_on_record, timeout=60)
        for command in compare:
            await typed(command, environment)
        assert await world.auditor.status(watched.execution_id) == "scheduled", (
            "the tour begins in shadow mode"
        )
        assert await consumers(world.amqp_url, STOCK_QUEUE) == 0

    [*changes, config_show, run] = switch_on
    environment |= exported(changes)
    assert f"dlq_handler.intake.queue\t{OWN_QUEUE}\t" in await typed(config_show, environment)
    async with running(run, world, environment):
        await eventually(lambda: answers(port), timeout=60)
        [dispatch] = await world.executor.schedule_many(1, worker.id)
        await world.all_ended([dispatch])
        assert await consumers(world.amqp_url, STOCK_QUEUE) == 0, "the tour leaves the stock queue alone"
        [letter] = await world.sql("SELECT id FROM dlq_handler.letter WHERE NOT is_shadow")
        # One that can be processed again.
        await world.sql(
            "UPDATE dlq_handler.letter SET outcome = 'unknown_execution' WHERE id = $1", letter["id"]
        )
        of_this_world = {
            "show ID": f"show {letter['id']}",
            "reprocess ID": f"reprocess {letter['id']}",
            "explain ID": f"explain {dispatch.execution_id}",
            "localhost:9464": f"127.0.0.1:{port}",
        }
        assert all(any(name in command for command in during) for name in of_this_world)
        # The heartbeat is old at once, however long the commands before took: status must report the worker.
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
            # Else the doctor finds the new worker not bound yet, or the owner of a new consumer not listed yet.
            await eventually(lambda: is_known(rabbitmq, world.amqp_url, lives), timeout=60)

            async def is_unavailable() -> bool:
                status = await typed("dlq-handler status", environment, code=None)
                return "worker unavailable" in status.splitlines()[1]

            await eventually(is_unavailable, timeout=90)
            for command in during:
                for name, real in of_this_world.items():
                    command = command.replace(name, real)  # noqa: PLW2901  # one after the other
                await typed(command, environment, code=1 if command == "dlq-handler status" else 0)


def test_the_tour_names_an_own_queue_and_shadow_mode_before_anything_consumes() -> None:
    _, before, *_ = blocks()
    run = before.index("dlq-handler run")
    chosen = exported(before[:run])
    assert chosen["ATTUNE__DLQ_HANDLER__SHADOW__ENABLED"] == "true"
    assert chosen["ATTUNE__DLQ_HANDLER__INTAKE__QUEUE"] not in ("", STOCK_QUEUE)
    first_runs = [block.index("dlq-handler run") for block in blocks() if "dlq-handler run" in block]
    assert len(first_runs) == 2, "in shadow mode, and then for good"


@asynccontextmanager
async def running(command: str, world: StockWorld, environment: Mapping[str, str]) -> AsyncIterator[None]:
    """The command, until the end of the block; SIGTERM must then end it with 0."""
    assert command == "dlq-handler run"
    with (world.folder / "run.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command), stdout=log, stderr=log, cwd=ROOT, env=environment
        )
    try:
        yield
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def consumers(amqp_url: str, queue: str) -> int:
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        return (await channel.declare_queue(queue, passive=True)).declaration_result.consumer_count or 0


async def is_known(rabbitmq: RabbitMQ, amqp_url: str, worker: StockWorker) -> bool:
    """Whether the worker's dead letters reach the own queue, and the management API lists who consumes it."""
    vhost = quote(unquote(urlsplit(amqp_url).path.removeprefix("/")), safe="")
    bindings = (await rabbitmq.ask("GET", f"bindings/{vhost}")).json()
    consumers = (await rabbitmq.ask("GET", f"consumers/{vhost}")).json()
    return any(
        (one["destination"], one["routing_key"]) == (OWN_QUEUE, f"execution.dispatch.worker.{worker.id}")
        for one in bindings
    ) and any(one["queue"]["name"] == OWN_QUEUE and one["channel_details"] for one in consumers)


async def typed(command: str, environment: Mapping[str, str], *, code: int | None = 0) -> str:
    """Return the output. `code` None: any exit code."""
    program, *arguments = ["/bin/sh", "-c", command] if " | " in command else shlex.split(command)
    if program == "curl":  # not on every machine, and only its address is ours
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://{arguments[0]}")).status_code == 200, command
        return ""
    process = await asyncio.create_subprocess_exec(
        program if not program.startswith("./") else str(ROOT / program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env=environment,
    )
    async with asyncio.timeout(180):
        out, _ = await process.communicate()
    assert code in {process.returncode, None}, f"{command}\n{out.decode()}"
    return out.decode()


async def answers(port: int) -> bool:
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
    except httpx.TransportError:
        return False
