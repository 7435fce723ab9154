"""With exactly the rights that `dlq-handler grants` prints, and no other, the whole job is done."""

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest

from dlq_handler.dashboard.router import PLAIN
from sandbox.attune.amqp import PublishFailed
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.timeout_monitor import StockTimeoutMonitor
from sandbox.attune.worker import StockWorker
from sandbox.servers import RabbitMQ
from sandbox.times import SCALED, sidecar_environment
from tests.acceptance.test_unpublished_ends import a_task, found_without_consumer, lost
from tests.support.eventually import eventually
from tests.support.least_rights import USER, as_user, least_rights
from tests.support.sidecar import SidecarProcess, sidecar_process
from tests.support.stock_world import StockWorld

OWN_QUEUE = "attune.dlx.sidecar.queue"


# Every wait of the sidecar that the journey would have to sit through, short.
QUICK = sidecar_environment(
    replace(SCALED, worker_queue_ttl_ms=500, unavailable_after_seconds=3, held_slot_seconds=2)
) | {
    "ATTUNE__MESSAGE_QUEUE__RABBITMQ__DEAD_LETTER__TTL_MS": "5000",
    "ATTUNE__DLQ_HANDLER__RETENTION__INTERVAL_SECONDS": "1",
    "ATTUNE__DLQ_HANDLER__INTAKE__QUEUE": OWN_QUEUE,
    "ATTUNE__DLQ_HANDLER__WORKER__RECONNECTS": "false",
}


@pytest.mark.usefixtures("admission_works")
async def test_the_printed_rights_are_sufficient_for_the_path_from_shadow_to_live(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    """docs/how-to/beside-attune.md: the rights are granted once in step 1; shadow mode is step 2, live mode step 4."""
    worker = await world.lost_worker()
    urls = as_user(world.amqp_url), as_user(world.database_url)
    settings = QUICK | {"broker__management_url": as_user(rabbitmq.management_url)}
    async with (
        sidecar_process(
            world.folder, *urls, name="granted", start=False, shadow__enabled="true", **settings
        ) as granted,
        least_rights(world, rabbitmq, granted),
    ):
        async with sidecar_process(
            world.folder, *urls, name="shadow", start=True, shadow__enabled="true", **settings
        ) as sidecar:
            seen = await world.executor.schedule_many(2, worker.id)
            await eventually(lambda: sidecar.events("dead_letter.decided"), timeout=60)
            assert {await world.auditor.status(one.execution_id) for one in seen} == {"scheduled"}
            [row] = await world.sql("SELECT tableowner FROM pg_tables WHERE tablename = 'letter'")
            assert row["tableowner"] == USER, "the role did not migrate by itself"
            await nothing_was_refused(sidecar)
        async with (
            Scheduler(world.amqp_url, world.database_url),
            sidecar_process(world.folder, *urls, name="live", start=True, **settings) as sidecar,
            AsyncExitStack() as later,
        ):
            task = await task_is_ended_without_event(world, worker)
            await later.enter_async_context(CompletionListener(world.amqp_url, world.database_url))
            await lost_event_is_published(world, task)
            await dead_letters_end(world, worker)
            # Their dead letters went to shadow mode alone.
            await world.all_ended(seen)
            await work_of_the_monitor_is_done(world, worker, sidecar)
            await held_slots_are_released(world)
            await management_api_is_read(world, sidecar)
            await eventually(lambda: sidecar.events("records.deleted"), timeout=60)
            await pages_are_served(sidecar, execution_id=seen[0].execution_id)
            story = await sidecar.cli_json("executions", "explain", str(seen[0].execution_id))
            assert "moved" in [moment["kind"] for moment in story["moments"]], "Attune's history is not read"
            await nothing_was_refused(sidecar)


async def task_is_ended_without_event(world: StockWorld, worker: StockWorker) -> int:
    """A task of a workflow, by Attune's own monitor, while the queue of completion events has no consumer."""
    parent = await world.executor.create_execution("core.workflow")
    await world.sql("UPDATE execution SET status = 'running' WHERE id = $1", parent)
    [workflow] = await world.sql(
        "INSERT INTO workflow_execution (execution, current_tasks) VALUES ($1, '{build}') RETURNING id",
        parent,
    )
    task = await a_task(world, parent, workflow["id"], "build")
    monitor = StockTimeoutMonitor(
        world.executor.database,
        lost,
        world.executor.may_still_take,
        times=SCALED,
        # It leaves alone what only waits: dlq-handler ends that.
        scheduled_timeout_seconds=3600,
        check_seconds=60,
    )
    await found_without_consumer(world, await world.now())
    await world.sql("UPDATE worker SET status = 'inactive' WHERE id = $1", worker.id)
    await world.sql("UPDATE execution SET status = 'running', worker = $2 WHERE id = $1", task, worker.id)
    with pytest.raises(PublishFailed):
        await monitor.tick()
    assert monitor.ended == [task]
    await found_without_consumer(world, await world.now())
    return task


async def lost_event_is_published(world: StockWorld, task: int) -> None:
    """Only a role that may read `workflow_execution` knows that the workflow still waits for it."""

    async def is_known_to_the_workflow() -> bool:
        [row] = await world.sql("SELECT failed_tasks FROM workflow_execution")
        return bool(row["failed_tasks"] == ["build"])

    await eventually(is_known_to_the_workflow, timeout=60)
    assert (await world.auditor.completion_counts())[task] == 1


async def dead_letters_end(world: StockWorld, worker: StockWorker) -> None:
    dispatched = await world.executor.schedule_many(3, worker.id)
    await world.all_ended(dispatched)
    assert (await world.auditor.result(dispatched[0].execution_id))["error"] == "Worker queue TTL expired"


async def work_of_the_monitor_is_done(
    world: StockWorld, worker: StockWorker, sidecar: SidecarProcess
) -> None:
    """What was running is abandoned, a lost request is published again, that of a workflow's parent is not."""
    parent = await an_overdue_parent(world)
    rows = await world.sql(
        "INSERT INTO execution (action_ref, status, worker, started_at, updated)"
        " VALUES ('core.echo', 'running', $1, now(), now()),"
        " ('core.echo', 'requested', NULL, NULL, now() - interval '1 h') RETURNING id",
        worker.id,
    )
    running, requested = (row["id"] for row in rows)

    async def is_abandoned() -> bool:
        return await world.auditor.status(running) == "abandoned"

    def requested_again() -> set[int]:
        return {
            number
            for one in sidecar.events("execution.request_republished")
            for number in one["execution_ids"]
        }

    await eventually(is_abandoned, timeout=60)
    # The parent is older: the scan came to it first.
    await eventually(lambda: requested in requested_again(), timeout=60)
    assert parent not in requested_again()


async def an_overdue_parent(world: StockWorld) -> int:
    """Its action is the only sign that it is one: it has neither children nor a record of its start."""
    action = await world.executor.ensure_action("core.flow")
    await world.sql(
        "INSERT INTO workflow_definition (ref, pack, pack_ref, label, version)"
        " SELECT ref, pack, pack_ref, label, '1.0.0' FROM action WHERE id = $1",
        action,
    )
    await world.sql(
        "UPDATE action SET workflow_def = (SELECT id FROM workflow_definition) WHERE id = $1", action
    )
    [row] = await world.sql(
        "INSERT INTO execution (action, action_ref, status, updated)"
        " VALUES ($1, 'core.flow', 'requested', now() - interval '2 h') RETURNING id",
        action,
    )
    return int(row["id"])


async def held_slots_are_released(world: StockWorld) -> None:
    await world.executor.ensure_action("core.one", concurrency_limit=1)
    execution_id = await world.executor.create_execution("core.one")
    assert await world.executor.admit(execution_id)
    await world.sql("UPDATE execution SET status = 'cancelled' WHERE id = $1", execution_id)

    async def is_released() -> bool:
        return not await world.sql(
            "SELECT FROM execution_admission_entry WHERE execution_id = $1", execution_id
        )

    await eventually(is_released, timeout=60)


async def management_api_is_read(world: StockWorld, sidecar: SidecarProcess) -> None:
    """With the tag that `grants` prints: the connection of a worker, its queue, the bindings."""
    async with StockWorker(world.amqp_url, world.database_url, name="alive", heartbeat_seconds=0.5) as worker:
        await worker.hang()
        await world.sql(
            "INSERT INTO execution (action_ref, status, worker, started_at) VALUES ('core.echo', 'running', $1, now())",
            worker.id,
        )

        async def is_connection_known() -> bool:
            rows = await world.sql(
                "SELECT FROM dlq_handler.worker_connection WHERE worker_id = $1 AND connection IS NOT NULL",
                worker.id,
            )
            return bool(rows)

        await eventually(is_connection_known, timeout=60)
        code, _, warning = await sidecar.cli("workers", "list")
        assert (code, warning) == (0, "")
        _, out, _ = await sidecar.cli("doctor", "--no-canary", "--output", "json")
        found = {one["check"]: one for one in json.loads(out)["diagnoses"]}
        assert found["worker restarts"]["health"] == "ok", found["worker restarts"]
        assert "reconnects is false" in found["worker restarts"]["explanation"]
        assert found["topology"]["health"] != "unknown", found["topology"]


async def pages_are_served(sidecar: SidecarProcess, *, execution_id: int) -> None:
    async with httpx.AsyncClient(
        verify=False, trust_env=False, base_url=sidecar.ui_url, timeout=60
    ) as client:
        paths = (await client.get("/api/v1/openapi.json")).json()["paths"]
        plain = [path for path, verbs in paths.items() if "get" in verbs and "{" not in path]
        pages = [*PLAIN, *plain, f"/executions/{execution_id}", f"/api/v1/executions/{execution_id}"]
        # The stream of events has no end.
        for path in (page for page in pages if page not in {"/api/v1/events", "/login"}):
            assert (await client.get(path)).status_code == 200, path


async def nothing_was_refused(sidecar: SidecarProcess) -> None:
    assert "database rights" not in await sidecar.problems()
    assert await sidecar.terminate() == 0
    refused = [
        line
        for line in sidecar.log_text().splitlines()
        if "ACCESS_REFUSED" in line or "permission denied" in line or "42501" in line
    ]
    assert refused == []


async def test_a_right_that_is_refused_at_the_start_is_a_warning_that_names_grants(
    world: StockWorld, rabbitmq: RabbitMQ
) -> None:
    urls = as_user(world.amqp_url), as_user(world.database_url)
    async with (
        sidecar_process(world.folder, *urls, start=False, intake__queue=OWN_QUEUE) as sidecar,
        least_rights(world, rabbitmq, sidecar),
    ):
        vhost = urlsplit(world.amqp_url).path.removeprefix("/")
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        await rabbitmq.ask("PUT", f"permissions/{vhost}/{USER}", nothing)
        await sidecar.start(ready=False)
        await eventually(lambda: sidecar.events("start.refused"), timeout=60)
        line = sidecar.events("start.refused")[0]
        assert line["level"] == "warning"
        assert "ACCESS_REFUSED" in line["error"]
        assert "`dlq-handler grants`" in line["error"]
