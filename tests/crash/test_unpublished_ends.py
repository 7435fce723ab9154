"""The broker restarts. Attune's executor runs on without it, and ends executions that it cannot publish any more."""

from collections.abc import Collection
from pathlib import Path

from sandbox.attune.database import Database, Session
from sandbox.servers import PrivateRabbitMQ
from tests.support.auditor import Auditor
from tests.support.eventually import eventually
from tests.support.reference_attune import reference_attune
from tests.support.sidecar import sidecar_process
from tests.support.world import management_url

EXECUTOR = "executor"


async def put_to_work(session: Session) -> dict[str, int]:
    """Two executions that no worker takes, one of them a task of a workflow, and one of an unavailable worker."""
    worker = await session.fetchval(
        "INSERT INTO worker (name, worker_type, worker_role, status, last_heartbeat)"
        " VALUES ('gone', 'local', 'action', 'inactive', now()) RETURNING id"
    )
    parent = await session.fetchval(
        "INSERT INTO execution (action_ref, status) VALUES ('core.workflow', 'running') RETURNING id"
    )
    workflow = await session.fetchval(
        "INSERT INTO workflow_execution (execution, current_tasks) VALUES ($1, '{build}') RETURNING id",
        parent,
    )
    task = {"workflow_execution": workflow, "task_name": "build", "retry_count": 0, "max_retries": 0}
    ids = {}
    for name, status, workflow_task in (
        ("plain", "scheduled", None),
        ("task", "scheduled", task),
        ("run", "running", None),
    ):
        ids[name] = await session.fetchval(
            "INSERT INTO execution (action_ref, status, worker, parent, workflow_task)"
            " VALUES ('core.echo', $1::text::execution_status, $2, $3, $4) RETURNING id",
            status,
            worker,
            parent if workflow_task else None,
            workflow_task,
        )
    return ids


async def signatures(session: Session, ids: Collection[int]) -> set[str]:
    rows = await session.fetch(
        "SELECT coalesce(result ->> 'failed_by', result ->> 'abandoned_by') AS by FROM execution"
        " WHERE id = ANY($1::bigint[])",
        list(ids),
    )
    return {row["by"] for row in rows}


async def test_workflow_goes_on_after_a_broker_restart_and_a_restart_of_the_executor(
    vhost: str, database: str, rabbitmq: PrivateRabbitMQ, tmp_path: Path
) -> None:
    attunes = await Database.open(database)
    session = attunes.session
    async with (
        reference_attune(tmp_path, vhost, database, ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT="2") as attune,
        Auditor(vhost, database) as auditor,
        # Without the management API it asks about one unknown queue a minute.
        sidecar_process(
            tmp_path,
            vhost,
            database,
            broker__management_url=management_url(rabbitmq),
            monitor__quiet_seconds="2",
            monitor__interval_seconds="1",
        ),
    ):
        await attune.start(EXECUTOR)
        pid = attune.pid(EXECUTOR)
        await rabbitmq.kill()
        await rabbitmq.start()

        async def is_recorded() -> bool:
            sql = (
                "SELECT 1 FROM dlq_handler.unconsumed_interval WHERE last_observed_at > began_at AND is_open"
            )
            return bool(await session.fetch(sql))

        await eventually(is_recorded, timeout=90)
        ids = await put_to_work(session)

        async def are_ended() -> bool:
            return await signatures(session, ids.values()) == {"execution_timeout_monitor"}

        await eventually(are_ended, timeout=60)

        async def is_seen() -> bool:
            sql = (
                "SELECT 1 FROM dlq_handler.unconsumed_interval"
                " WHERE last_observed_at > (SELECT max(updated) FROM execution)"
            )
            return bool(await session.fetch(sql))

        await eventually(is_seen, timeout=60)
        assert attune.pid(EXECUTOR) == pid
        assert await auditor.completions() == []

        await attune.stop(EXECUTOR)
        await attune.start(EXECUTOR)

        async def has_gone_on() -> bool:
            return bool(await session.fetchval("SELECT failed_tasks FROM workflow_execution") == ["build"])

        await eventually(has_gone_on, timeout=90)

        async def are_published() -> bool:
            return set(await auditor.completion_counts()) == set(ids.values())

        await eventually(are_published, timeout=60)
        assert await auditor.completion_counts() == dict.fromkeys(ids.values(), 1)
        assert await signatures(session, ids.values()) == {"execution_timeout_monitor"}
    await attunes.close()
