"""Defects that Attune's own binaries showed: each is there by default, absent when cured.

Each test quotes the fact of attune-contract.md that it holds, and the section where it stands.
"""

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox.attune import messages, topology
from sandbox.attune.admission import UndecodableSum
from sandbox.attune.amqp import open_connection
from sandbox.attune.api.process import Api, web_app
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.database import bare_connection
from sandbox.attune.defects import Defect
from sandbox.attune.environment import Environment
from sandbox.attune.executor import StockExecutor
from sandbox.attune.health import Unhealthy, WithoutBroker
from sandbox.attune.log_line import silent
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.schema import cure, install
from sandbox.attune.worker import StockWorker
from sandbox.clean_environment import clean_environment
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.reference_attune import PROGRAM, ReferenceAttune, reference_attune
from tests.support.tcp_proxy import TcpProxy
from tests.tools.attune import test_api, test_defects
from tests.tools.attune.test_defects import cured, here_and_cured
from tests.tools.attune.until_ready import until_ready

PARTS = ("api", "executor", "worker worker-shell")

WORKFLOW = """
INSERT INTO pack (ref, label, version) VALUES ('core', 'core', '1.0.0') ON CONFLICT DO NOTHING;
INSERT INTO workflow_definition (ref, pack, pack_ref, label, version)
SELECT 'core.flow', id, ref, ref, '1.0.0' FROM pack;
INSERT INTO action (ref, pack, pack_ref, label, entrypoint, workflow_def)
SELECT ref, pack, pack_ref, ref, ref, id FROM workflow_definition;
"""


@here_and_cured
async def test_json_null_ordinary_executions_have_no_workflow_task(
    is_cured: bool, vhost: str, database: str, worker: StockWorker
) -> None:
    """§1: "workflow_task jsonb (JSON null ('null'::jsonb), not SQL NULL, on every ordinary execution)"."""
    async with StockExecutor(vhost, database, cured=cured(Defect.JSON_NULL, is_cured)) as executor:
        await executor.create_execution()
        await executor.schedule_many(1, worker.id)
        await executor.schedule_many(1, worker.id, straight=True)
        task = await executor.create_execution(workflow_task={"task_name": "build"})
        rows = await executor.database.session.fetch(
            "SELECT id, jsonb_typeof(workflow_task) AS kind FROM execution ORDER BY id"
        )
    ordinary = None if is_cured else "null"
    assert [row["kind"] for row in rows] == [ordinary, ordinary, ordinary, "object"]
    assert rows[-1]["id"] == task


@here_and_cured
async def test_no_workflow_def_parents_do_not_name_their_workflow(
    is_cured: bool, vhost: str, database: str
) -> None:
    """§1: "workflow_def bigint FK (never written, also not on workflow parents)"."""
    async with StockExecutor(vhost, database, cured=cured(Defect.NO_WORKFLOW_DEF, is_cured)) as executor:
        session = executor.database.session
        await session.execute(WORKFLOW)
        parent = await executor.create_execution("core.flow")
        written = await session.fetchval("SELECT workflow_def FROM execution WHERE id = $1", parent)
        assert written == (await session.fetchval("SELECT id FROM workflow_definition") if is_cured else None)


@here_and_cured
async def test_no_reconnect_services_lose_the_broker_for_good(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor, tmp_path: Path
) -> None:
    """§2: "No Attune service reconnects to RabbitMQ. After a broker restart api, executor and workers go on running
    without consumers and cannot publish, for ever; workers go on heartbeating `active`; nothing exits. The api then
    answers 500 and leaves the row `requested`. Only a restart of each service cures it."
    """
    variables = {"SANDBOX_CURED": "NO_RECONNECT"} if is_cured else {}
    async with (
        TcpProxy.to(vhost) as proxy,
        reference_attune(tmp_path, proxy.url, database, **variables) as attune,
    ):
        await attune.start(*PARTS)
        proxy.cut()
        await eventually(
            lambda: all("the connection to the broker is lost" in attune.log(part) for part in PARTS)
        )
        if not is_cured:
            await goes_on_without_broker(attune, executor)
            for part in PARTS:
                await attune.stop(part)
            await attune.start(*PARTS)
        for part in PARTS:
            await attune.until_healthy(part)
        await attune.until_status(await attune.execute("core.echo"), "completed")


async def goes_on_without_broker(attune: ReferenceAttune, executor: StockExecutor) -> None:
    session = executor.database.session
    since = await session.fetchval("SELECT now()")

    async def has_reported() -> object:
        return await session.fetchval(
            "SELECT id FROM worker WHERE status = 'active' AND last_heartbeat > $1::timestamptz + interval '1 second'",
            since,
        )

    await eventually(has_reported)
    for part in PARTS:
        assert attune.is_running(part)
        with pytest.raises(WithoutBroker):
            await attune.health(part)
    async with attune.http() as client:
        answer = await client.post("/api/v1/executions/execute", json={"action_ref": "core.echo"})
    assert answer.status_code == 500
    assert await session.fetchval("DELETE FROM execution RETURNING status::text") == "requested"


@pytest.mark.parametrize("part", ["api", "executor"])
@here_and_cured
async def test_sigterm_at_once_ends_executor_and_api_without_draining(
    part: str, is_cured: bool, vhost: str, database: str, tmp_path: Path
) -> None:
    """§6: "Executor and api handle SIGINT only: SIGTERM ends them at once, without draining"."""
    variables = {"SANDBOX_CURED": "SIGTERM_AT_ONCE"} if is_cured else {}
    async with reference_attune(tmp_path, vhost, database, **variables) as attune:
        codes = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            process = await asyncio.create_subprocess_exec(
                *PROGRAM, part, env=clean_environment(attune.variables), stdout=asyncio.subprocess.DEVNULL
            )
            try:
                await eventually(lambda: is_healthy(attune, part), timeout=60)
                process.send_signal(number)
                async with asyncio.timeout(30):
                    codes[number] = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    assert codes == {signal.SIGTERM: 0 if is_cured else 128 + signal.SIGTERM, signal.SIGINT: 0}


async def is_healthy(attune: ReferenceAttune, part: str) -> bool:
    try:
        await attune.health(part)
    except Unhealthy as unwell:
        raise AssertionError(str(unwell)) from unwell
    return True


async def cancel(link: Api, execution_id: int) -> dict[str, Any]:
    """By the api's own route."""
    app = web_app(link, Environment.read({}), silent)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://attune", headers={"Authorization": "Bearer sandbox"}
    ) as client:
        answer = await client.post(f"/api/v1/executions/{execution_id}/cancel")
    assert answer.status_code == 200, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


@here_and_cured
@pytest.mark.usefixtures("admission_works")
async def test_d14_a_cancelled_execution_holds_its_slot_also_one_that_gets_it_later(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor, auditor: Auditor
) -> None:
    """§7, D14: "cancel of scheduled/requested publishes no execution.completed → active/queued admission entries leak",
    "also cancelling one that waits in line: it is promoted later and holds the slot for ever".
    """
    await executor.ensure_action("core.slow", concurrency_limit=1)
    holder, in_line, last = [await executor.create_execution("core.slow") for _ in range(3)]
    for one in (holder, in_line, last):
        await executor.admit(one)
    async with (
        Api(vhost, database, cured=cured(Defect.D14, is_cured)) as link,
        CompletionListener(vhost, database) as listener,
    ):
        assert (await cancel(link, in_line))["status"] == "cancelled"
        await cancel(link, holder)
        if is_cured:

            async def is_called_up() -> bool:
                return await auditor.line("core.slow") == [(last, "active")]

            await eventually(is_called_up)
            return
        assert await auditor.line("core.slow") == [(holder, "active"), (in_line, "queued"), (last, "queued")]
        # Its completion event, published by another component, requests the cancelled one behind it.
        end = messages.execution_completed(execution_id=holder, action_ref="core.slow", status="cancelled")
        await executor.publish(end)
        await eventually(lambda: listener.promoted == [in_line])
    assert await auditor.line("core.slow") == [(in_line, "active"), (last, "queued")]


@here_and_cured
async def test_d15_no_action_with_a_limit_ever_runs(
    is_cured: bool, vhost: str, database: str, executor: StockExecutor, auditor: Auditor
) -> None:
    """§7, D15: "no action with a concurrency policy ever runs: the request is rejected, the row stays `requested`; with
    the totals as integer columns admission works".
    """
    if is_cured:
        await cure(database, frozenset({Defect.D15}))
    await executor.ensure_action("core.slow", concurrency_limit=1)
    async with StockWorker(vhost, database), Scheduler(vhost, database) as scheduler:
        execution_id = await executor.create_execution("core.slow")
        await executor.request(execution_id)
        assert scheduler.consumer is not None
        consumer, failures = scheduler.consumer, scheduler.consumer.failures
        # Also settled: a request that is not goes back to the queue when the scheduler ends.
        await eventually(lambda: consumer.settled == 1)
        assert len(failures) + len(scheduler.dispatched) == 1
    assert [type(failure) for failure in failures] == ([] if is_cured else [UndecodableSum])
    await until_ready(vhost, topology.REQUESTS_QUEUE, 0)
    assert await auditor.status(execution_id) == ("scheduled" if is_cured else "requested")


@here_and_cured
async def test_no_history_id_the_history_tables_are_not_numbered(is_cured: bool, empty_database: str) -> None:
    """§1: "execution_history and worker_history have no id column and NO sequence"."""
    await install(empty_database, cured=cured(Defect.NO_HISTORY_ID, is_cured))
    async with bare_connection(empty_database) as session:
        columns = await session.fetch(
            """SELECT table_name FROM information_schema.columns WHERE table_schema = 'attune'
                  AND table_name IN ('execution_history', 'worker_history') AND column_name = 'id'"""
        )
        sequences = await session.fetch(
            "SELECT sequencename FROM pg_sequences WHERE sequencename LIKE '%\\_history\\_%'"
        )
    assert len(columns) == len(sequences) == (2 if is_cured else 0)


@here_and_cured
async def test_nanoseconds_are_in_the_times_of_messages(
    is_cured: bool, vhost: str, database: str, tmp_path: Path
) -> None:
    """§2: "timestamp RFC3339 'Z' (nanoseconds)". Of a message that the api published as a process of its own."""
    variables = {"SANDBOX_CURED": "NANOSECONDS"} if is_cured else {}
    async with reference_attune(tmp_path, vhost, database, **variables) as attune:
        await attune.start("api")
        await attune.until_healthy("api")
        connection = await open_connection(vhost)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(topology.EXECUTIONS, "execution.requested")
            await attune.execute("core.echo")
            message = await eventually(lambda: queue.get(fail=False))
    assert message is not None
    stamp = json.loads(message.body)["timestamp"]
    assert re.fullmatch(r".*:\d\d\.(\d{6})(\d{3})?Z", stamp)
    assert len(stamp) == len("2023-11-14T22:13:20.123456Z") + (0 if is_cured else 3)


def test_every_defect_is_tested() -> None:
    names = [*vars(test_defects), *vars(test_api), *globals()]
    untested = [
        one for one in Defect.__members__ if not any(f"test_{one.lower()}_" in name for name in names)
    ]
    assert untested == []
