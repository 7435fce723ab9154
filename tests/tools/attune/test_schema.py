"""The facts of Attune's database that the sidecar's transaction meets."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from sandbox.attune import schema
from sandbox.attune.database import Database, Session, bare_connection, plain_url
from sandbox.attune.executor import StockExecutor
from sandbox.attune.worker import StockWorker
from tests.support.auditor import Auditor


@pytest.fixture
async def session(database: str) -> AsyncIterator[Session]:
    opened = await Database.open(database)
    yield opened.session
    await opened.close()


async def an_execution(session: Session, **columns: Any) -> int:
    names = ["action_ref", *columns]
    places = ", ".join(f"${number}" for number in range(1, len(names) + 1))
    execution_id: int = await session.fetchval(
        f"INSERT INTO execution ({', '.join(names)}) VALUES ({places}) RETURNING id",
        "core.echo",
        *columns.values(),
    )
    return execution_id


async def test_installing_twice_changes_nothing(database: str, session: Session) -> None:
    execution_id = await an_execution(session)
    await schema.install(database)
    assert await session.fetchval("SELECT id FROM execution") == execution_id


async def test_an_execution_needs_only_an_action_ref(session: Session) -> None:
    execution_id = await an_execution(session)
    row = await session.fetchrow("SELECT * FROM execution WHERE id = $1", execution_id)
    assert row is not None
    assert (row["status"], row["worker"], row["retry_count"]) == ("requested", None, 0)


async def test_execution_carries_every_index_of_the_contract(session: Session) -> None:
    rows = await session.fetch(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'attune' AND tablename = 'execution'"
    )
    definitions = [row["indexdef"] for row in rows]
    assert len(definitions) == 26
    assert len([one for one in definitions if "USING gin" in one]) == 6
    assert any("USING gin (result)" in one for one in definitions)
    assert len([one for one in definitions if "UNIQUE" in one]) == 2


ENUMS = {
    "execution_status": "requested scheduling scheduled running completed failed canceling cancelled timeout abandoned",
    "worker_status": "active inactive busy error",
    "worker_type": "local remote container",
    "worker_role": "action sensor",
    "policy_method": "cancel enqueue",
    "notification_status": "created queued processing error",
    "enforcement_status": "created processed disabled",
    "inquiry_status": "pending responded timeout cancelled",
    "artifact_retention": "versions days hours minutes",
    "work_queue_item_status": "queued leased retry completed failed skipped cancelled",
    "work_queue_dispatch_status": "leased dispatched completed failed released cancelled",
    "owner_type": "system identity pack action sensor",
    "audit_category": "api auth rbac secret admin execution pack",
    "audit_outcome": "success failure denied",
    "sensor_process_status": "starting running stopped failed backoff",
    "pack_environment_status": "pending installing ready failed outdated",
}

COLUMNS = {
    "execution": "id action action_ref config env_vars parent enforcement executor permission_set_refs "
    "artifact_retention_policy artifact_retention_limit worker_selector worker_tolerations worker_affinity worker "
    "status result started_at created workflow_def workflow_task retry_count max_retries retry_reason "
    "original_execution updated",
    "worker": "id name worker_type worker_role runtime host port status capabilities meta last_heartbeat cordoned "
    "cordon_reason cordoned_by cordoned_at created updated",
    "queue_stats": "action_id queue_length active_count max_concurrent oldest_enqueued_at total_enqueued "
    "total_completed last_updated",
    "execution_admission_state": "id action_id group_key group_key_normalized max_concurrent next_queue_order "
    "total_enqueued total_completed created updated",
    "execution_admission_entry": "id state_id execution_id status queue_order enqueued_at activated_at created updated",
}


async def test_enums_are_those_of_the_contract(session: Session) -> None:
    rows = await session.fetch(
        """SELECT typname, string_agg(enumlabel, ' ' ORDER BY enumsortorder) AS labels
             FROM pg_enum JOIN pg_type ON pg_type.oid = enumtypid GROUP BY typname"""
    )
    assert {row["typname"]: row["labels"] for row in rows} == ENUMS


@pytest.mark.parametrize("table", sorted(COLUMNS))
async def test_columns_are_those_of_the_contract(session: Session, table: str) -> None:
    columns = await session.fetchval(
        """SELECT string_agg(column_name, ' ' ORDER BY ordinal_position)
             FROM information_schema.columns WHERE table_schema = 'attune' AND table_name = $1""",
        table,
    )
    assert columns == COLUMNS[table]


async def test_whatever_has_updated_moves_it(session: Session) -> None:
    with_column = await session.fetch(
        """SELECT DISTINCT table_name FROM information_schema.columns
            WHERE table_schema = 'attune' AND column_name = 'updated' AND table_name <> 'healthy_workers'"""
    )
    with_trigger = await session.fetch(
        """SELECT DISTINCT event_object_table AS table_name FROM information_schema.triggers
            WHERE trigger_schema = 'attune' AND action_statement LIKE '%set_updated%'"""
    )
    assert {row["table_name"] for row in with_trigger} == {row["table_name"] for row in with_column}
    assert {"execution", "worker", "execution_admission_entry"} <= {row["table_name"] for row in with_column}


async def test_any_change_moves_updated(session: Session) -> None:
    execution_id = await an_execution(session)
    before = await session.fetchval("SELECT updated FROM execution WHERE id = $1", execution_id)
    after = await session.fetchval(
        "UPDATE execution SET env_vars = '{}' WHERE id = $1 RETURNING updated", execution_id
    )
    assert after > before


async def test_a_guard_one_microsecond_off_changes_nothing(session: Session) -> None:
    execution_id = await an_execution(session, status="scheduled")
    fail = """UPDATE execution SET status = 'failed'
               WHERE id = $1 AND status = 'scheduled'
                 AND updated = $2::timestamptz + $3 * interval '1 microsecond'
           RETURNING id"""
    updated = await session.fetchval("SELECT updated FROM execution WHERE id = $1", execution_id)
    assert await session.fetch(fail, execution_id, updated, 1) == []
    assert await session.fetch(fail, execution_id, updated, -1) == []
    assert len(await session.fetch(fail, execution_id, updated, 0)) == 1


async def test_failing_an_execution_leaves_one_history_and_one_audit_row(
    session: Session, auditor: Auditor
) -> None:
    execution_id = await an_execution(session, status="scheduled")
    await session.execute(
        "UPDATE execution SET status = 'failed', result = '{\"error\": \"x\"}' WHERE id = $1", execution_id
    )
    _created, failed = await auditor.history(execution_id)
    assert failed.operation == "UPDATE"
    assert sorted(failed.changed_fields) == ["result", "status"]
    assert failed.old_values == {"status": "scheduled", "result": None}
    # attune-contract.md §1: "of result it keeps only size, type, digest".
    assert failed.new_values is not None
    assert failed.new_values["status"] == "failed"
    assert failed.new_values["result"].keys() == {"size", "type", "digest"}
    assert (failed.new_values["result"]["size"], failed.new_values["result"]["type"]) == (14, "object")
    assert await auditor.audit_trail(execution_id) == [
        ("execution.scheduled", "success"),
        ("execution.failed", "failure"),
    ]


async def test_a_change_of_nothing_but_updated_leaves_no_history(session: Session, auditor: Auditor) -> None:
    execution_id = await an_execution(session)
    await session.execute("UPDATE execution SET status = status WHERE id = $1", execution_id)
    assert [row.operation for row in await auditor.history(execution_id)] == ["INSERT"]
    assert len(await auditor.audit_trail(execution_id)) == 1


async def test_triggers_fail_without_the_search_path(database: str, session: Session) -> None:
    execution_id = await an_execution(session, status="scheduled")
    async with bare_connection(database) as stranger:
        with pytest.raises(asyncpg.PostgresError) as caught:
            await stranger.execute(
                "UPDATE attune.execution SET status = 'failed' WHERE id = $1", execution_id
            )
    assert caught.value.sqlstate.startswith("42")
    assert await session.fetchval("SELECT status FROM execution WHERE id = $1", execution_id) == "scheduled"


async def test_a_payload_too_long_for_notify_fails_the_update_itself(session: Session) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await an_execution(session, workflow_task={"task_name": "x" * 8000})
    assert caught.value.sqlstate == "22023"
    assert "payload string too long" in str(caught.value)

    execution_id = await an_execution(session, workflow_task={"task_name": "x"})
    with pytest.raises(asyncpg.PostgresError) as caught:
        await session.execute(
            "UPDATE execution SET status = 'failed', workflow_task = $2 WHERE id = $1",
            execution_id,
            {"task_name": "x" * 8000},
        )
    assert caught.value.sqlstate == "22023"


async def test_a_long_workflow_task_does_not_matter_while_the_status_stays(session: Session) -> None:
    execution_id = await an_execution(session)
    await session.execute(
        "UPDATE execution SET workflow_task = $2 WHERE id = $1", execution_id, {"task_name": "x" * 8000}
    )


async def test_a_new_status_is_notified_once_with_the_contract_s_fields(
    database: str, session: Session
) -> None:
    heard = await _listening(database, session, "execution_created", "execution_status_changed")
    enforcement = await session.fetchval(
        "INSERT INTO enforcement (rule_ref, trigger_ref) VALUES ('core.rule', 'core.timer') RETURNING id"
    )
    execution_id = await an_execution(session, enforcement=enforcement)
    await session.execute("UPDATE execution SET env_vars = '{}' WHERE id = $1", execution_id)
    await session.execute("UPDATE execution SET status = 'scheduling' WHERE id = $1", execution_id)

    notifications = await heard()
    assert [channel for channel, _ in notifications] == ["execution_created", "execution_status_changed"]
    created, changed = (payload for _, payload in notifications)
    assert set(changed) - set(created) == {"old_status"}
    assert set(created) == {
        *("entity_type", "entity_id", "id", "action_id", "action_ref", "status", "enforcement", "rule_ref"),
        *("trigger_ref", "parent", "started_at", "workflow_task", "created", "updated"),
    }
    assert (changed["entity_id"], changed["old_status"], changed["status"]) == (
        execution_id,
        "requested",
        "scheduling",
    )
    assert (changed["rule_ref"], changed["trigger_ref"]) == ("core.rule", "core.timer")


async def test_only_workflow_executions_notify_the_workflow_channel(database: str, session: Session) -> None:
    heard = await _listening(database, session, "workflow_execution_status_changed")
    pack = await session.fetchval(
        "INSERT INTO pack (ref, label, version) VALUES ('core', 'c', '1.0.0') RETURNING id"
    )
    workflow = await session.fetchval(
        """INSERT INTO workflow_definition (ref, pack, pack_ref, label, version)
           VALUES ('core.flow', $1, 'core', 'flow', '1.0.0') RETURNING id""",
        pack,
    )
    plain = await an_execution(session)
    parent = await an_execution(session, workflow_def=workflow)
    await session.execute("UPDATE execution SET status = 'running' WHERE id = ANY($1)", [plain, parent])
    assert [payload["entity_id"] for _, payload in await heard()] == [parent]


async def test_one_enforcement_starts_one_execution_unless_it_is_a_retry(session: Session) -> None:
    enforcement = await session.fetchval(
        "INSERT INTO enforcement (rule_ref, trigger_ref) VALUES ('core.rule', 'core.timer') RETURNING id"
    )
    first = await an_execution(session, enforcement=enforcement)
    with pytest.raises(asyncpg.UniqueViolationError):
        await an_execution(session, enforcement=enforcement)
    await an_execution(session, enforcement=enforcement, config={"retry_of": first})


async def test_deleting_a_worker_moves_the_stamp_of_its_executions(
    session: Session, executor: StockExecutor, worker: StockWorker
) -> None:
    dispatch = await executor.schedule(await executor.create_execution(), worker.id)
    await session.execute("DELETE FROM worker WHERE id = $1", worker.id)
    row = await session.fetchrow(
        "SELECT worker, status, updated FROM execution WHERE id = $1", dispatch.execution_id
    )
    assert row is not None
    assert (row["worker"], row["status"]) == (None, "scheduled")
    assert row["updated"] > dispatch.scheduled_at


async def test_a_heartbeat_leaves_no_history_and_a_status_does(session: Session, worker: StockWorker) -> None:
    count = "SELECT count(*) FROM worker_history WHERE entity_id = $1"
    await worker.heartbeat()
    assert await session.fetchval(count, worker.id) == 1
    await session.execute("UPDATE worker SET status = 'inactive' WHERE id = $1", worker.id)
    assert await session.fetchval(count, worker.id) == 2


async def test_healthy_workers_have_a_heartbeat_of_the_last_30_seconds(
    session: Session, worker: StockWorker
) -> None:
    assert await session.fetchval("SELECT count(*) FROM healthy_workers") == 1
    await worker.heartbeat(age_seconds=31)
    assert await session.fetchval("SELECT count(*) FROM healthy_workers") == 0


async def _listening(database: str, session: Session, *channels: str) -> Any:
    """Start to LISTEN; the returned function returns the notifications up to a marker that it sends."""
    heard: list[tuple[str, dict[str, Any]]] = []
    marked = asyncio.Event()
    connection = await asyncpg.connect(plain_url(database))

    def hear(_connection: object, _pid: int, channel: str, payload: str) -> None:
        if channel == "marker":
            marked.set()
        else:
            heard.append((channel, json.loads(payload)))

    for channel in (*channels, "marker"):
        await connection.add_listener(channel, hear)

    async def heard_so_far() -> list[tuple[str, dict[str, Any]]]:
        await session.execute("SELECT pg_notify('marker', '{}')")
        async with asyncio.timeout(10):
            await marked.wait()
        await connection.close()
        return heard

    return heard_so_far
