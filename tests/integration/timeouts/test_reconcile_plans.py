"""The slow looks read along indexes, in pages: what they cost does not grow with all that ever ran."""

import json
from datetime import timedelta
from typing import Any

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import database_time
from dlq_handler.host import executions_sql, reconcile_sql, unpublished_sql
from dlq_handler.host.ends import ENDED_BY_MONITOR, UnconsumedInterval
from dlq_handler.host.execution import BEGINNING, ExecutionStatus
from dlq_handler.host.unscheduled_sql import unscheduled_page
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decision import REVERTIBLE
from tests.integration.timeouts.test_stale import INDEX, Explaining, a_table_of, nodes
from tests.support.host_tables import Host

QUIET = [("completed", 15_000), ("failed", 5_000)]
TABLES = {
    "idle": [*QUIET, ("requested", 20)],
    "flood": [*QUIET, ("requested", 10_000), ("scheduling", 10_000)],
}


async def indexes(host: Host, beginning: str) -> set[str]:
    rows = await host.session.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'execution'"
    )
    return {row["indexname"] for row in rows if beginning in row["indexdef"]}


def assert_no_table_is_read_whole(plan: dict[str, Any], *, except_for: tuple[str, ...] = ()) -> None:
    whole = [node for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    assert {node["Relation Name"] for node in whole} <= set(except_for), json.dumps(plan, indent=1)


def index_of(plan: dict[str, Any], alias: str) -> str | None:
    [found] = [node for node in nodes(plan) if node.get("Alias") == alias]
    # Of a bitmap scan the node below it names the index.
    return found.get("Index Name") or next((one.get("Index Name") for one in found.get("Plans", [])), None)


@pytest.mark.parametrize("kind", TABLES)
async def test_pages_of_unscheduled_and_failed_executions_follow_the_index(
    store: Database, host: Host, kind: str
) -> None:
    # Of a handful that have the status it does not matter by which index they are found.
    by_status, by_both = await indexes(host, "(status"), await indexes(host, INDEX)
    async with a_table_of(host, TABLES[kind]), store.transaction() as tx:
        explaining = Explaining(tx)
        now = await database_time(tx)
        middle = (now - timedelta(hours=2), 1)
        for after in (BEGINNING, middle):
            for status in (ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING):
                await unscheduled_page(
                    explaining, after, status=status, older_than_seconds=900, limit=1000, is_shadow=False
                )
            await reconcile_sql.ends_without_event(explaining, after, until=now, limit=1000, is_shadow=False)
    assert len(explaining.plans) == 6
    for plan in explaining.plans:
        is_few = sum(node["Plan Rows"] for node in nodes(plan) if node.get("Alias") == "e") < 100
        assert index_of(plan, "e") in (by_status if is_few else by_both), json.dumps(plan, indent=1)
        # The tables of what is under way, and our own, are small here.
        assert_no_table_is_read_whole(
            plan, except_for=("execution_admission_entry", "stale_decision", "outbox", "repeated_request")
        )
        sorts = [node for node in nodes(plan) if "Sort" in node["Node Type"] and not is_few]
        assert all(node["Presorted Key"] == ["e.updated"] for node in sorts), json.dumps(plan, indent=1)


async def test_ends_of_ours_are_found_from_the_rows_that_moved_and_by_key(
    store: Database, host: Host
) -> None:
    by_both = await indexes(host, INDEX)
    async with a_table_of(host, [*QUIET, ("running", 50)]), store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO own.letter (key, execution_id, reason, exchange, routing_key, body, body_size, outcome,
                                    explanation, received_at, decided_at, replica)
            SELECT n, n, 'expired', '', '', '', 0, 'failed', '', now(), now(), '' FROM generate_series(1, 20000) AS n
            """
        )
        await tx.run(
            """
            INSERT INTO own.stale_decision (execution_id, attempt_updated_at, original_status, outcome, explanation,
            evidence,
                                            decided_at, replica)
            SELECT n, now(), 'running', 'abandoned', '', '{}', now(), '' FROM generate_series(1, 20000) AS n
            """
        )
        await tx.run("ANALYZE own.letter")
        await tx.run("ANALYZE own.stale_decision")
        explaining = Explaining(tx)
        now = await database_time(tx)
        for status, since in (("running", BEGINNING[0]), ("failed", now - timedelta(hours=2))):
            await reconcile_sql.own_ends(
                explaining,
                (since, 0),
                status=ExecutionStatus(status),
                until=now,
                limit=1000,
                outcomes=REVERTIBLE,
            )
    assert len(explaining.plans) == 2
    for plan in explaining.plans:
        assert_no_table_is_read_whole(plan, except_for=("worker",))
        assert index_of(plan, "letter") == "letter_execution_idx", json.dumps(plan, indent=1)
        assert "execution_id" in str(index_of(plan, "stale_decision")), json.dumps(plan, indent=1)
    found = [node["Alias"] for node in nodes(explaining.plans[1]) if node.get("Index Name") in by_both]
    assert found, json.dumps(explaining.plans[1], indent=1)


async def test_ends_of_attunes_monitor_are_found_from_one_end_of_the_interval_to_the_other(
    store: Database, host: Host
) -> None:
    by_both = await indexes(host, INDEX)
    async with a_table_of(host, [*QUIET, ("abandoned", 10_000)]), store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO own.unconsumed_interval (began_at, last_observed_at, is_open)
            SELECT now() - make_interval(secs => n), now() - make_interval(secs => n - 10), false
              FROM generate_series(10, 100000, 20) AS n
            """
        )
        await tx.run("ANALYZE own.unconsumed_interval")
        explaining = Explaining(tx)
        now = await database_time(tx)
        for interval in (
            UnconsumedInterval(
                began_at=now - timedelta(minutes=61), last_observed_at=now - timedelta(hours=1)
            ),
            UnconsumedInterval(began_at=BEGINNING[0], last_observed_at=now),
        ):
            for status in sorted(ENDED_BY_MONITOR):
                await unpublished_sql.ends_within(
                    explaining,
                    (interval.began_at, 0),
                    interval=interval,
                    status=status,
                    limit=1000,
                    is_shadow=False,
                )
        await decisions_sql.intervals_after(explaining, now - timedelta(minutes=10))
    *walks, intervals = explaining.plans
    assert len(walks) == 4
    for plan in walks:
        assert index_of(plan, "e") in by_both, json.dumps(plan, indent=1)
        assert_no_table_is_read_whole(plan, except_for=("stale_decision", "outbox"))
    assert_no_table_is_read_whole(intervals)


async def test_retries_are_found_by_their_original_or_their_parent(store: Database, host: Host) -> None:
    """A retry has a higher id than its original, and there may be millions of those."""
    parent = await host.add_execution(status="running")
    ids = await host.add_executions(
        3, status="failed", parent=parent, workflow_task={"task_name": "build", "retry_count": 0}
    )
    async with a_table_of(host, QUIET), store.transaction() as tx:
        explaining = Explaining(tx)
        await executions_sql.retried_among(explaining, ids)
    [plan] = explaining.plans
    assert_no_table_is_read_whole(plan)
    found = [str(one.get("Index Name")) for one in nodes(plan) if "Index Name" in one]
    assert any("original" in name for name in found), json.dumps(plan, indent=1)
    assert any("parent" in name for name in found), json.dumps(plan, indent=1)


async def test_other_ends_hide_no_end_of_attunes_monitor_but_of_their_own_minute(
    store: Database, host: Host
) -> None:
    """A flood of failures since then must not turn the warning about two monitors off."""
    by_monitor = {"failed_by": "execution_timeout_monitor"}
    worker = await host.add_worker()
    [one] = await host.add_executions(1, status="failed", worker=worker, result=by_monitor)
    others = await host.add_executions(1100, status="failed", worker=worker, result={"error": "exit code 1"})
    await host.session.execute(
        "SET session_replication_role = replica;"
        f"UPDATE execution SET updated = now() - interval '30 minutes' WHERE id = {one};"
        f"UPDATE execution SET updated = now() - interval '5 minutes' WHERE id >= {min(others)};"
        "SET session_replication_role = DEFAULT"
    )
    ended, first_at = await unpublished_sql.count_monitor_ends(store, within_seconds=3600)
    assert ended == 1
    assert first_at == (await host.execution(one))["updated"]
