"""Finding stale executions: along the host's index, each once, nothing that need not be looked at."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.host import stale_sql
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.stale_sql import Candidate
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decide import SCANNED
from dlq_handler.timeouts.decision import StaleOutcome, StaleRecord
from tests.support.host_tables import Host

SCHEDULED, RUNNING, CANCELING = SCANNED
INDEX = "(status, updated"


async def make_old(host: Host, ids: Sequence[int], seconds: float = 3600) -> None:
    """Without the triggers, one of which would make them new."""
    await host.session.execute(
        "SET session_replication_role = replica;"
        f"UPDATE execution SET updated = now() - interval '{seconds} seconds'"
        f" WHERE id IN ({','.join(map(str, ids))});"
        "SET session_replication_role = DEFAULT"
    )


async def found(
    store: Database, status: ExecutionStatus = SCHEDULED, *, limit: int = 100, **how: Any
) -> list[Candidate]:
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT clock_timestamp() AS now")
        given = {"not_after": row.now - timedelta(seconds=60), "behind": None} | how
        return await stale_sql.find_candidates(tx, status, limit=limit, **given)


async def test_pages_follow_one_another_through_rows_of_the_same_moment(store: Database, host: Host) -> None:
    ids = await host.add_executions(25)
    await make_old(host, ids)

    walked: list[int] = []
    behind: Candidate | None = None
    while page := await found(store, limit=10, behind=behind):
        walked += [one.id for one in page]
        behind = page[-1]

    assert walked == sorted(ids)


async def test_running_and_canceling_ones_without_a_worker_are_not_found(store: Database, host: Host) -> None:
    ids = [await host.add_execution(status=status.value) for status in (RUNNING, CANCELING)]
    await make_old(host, ids)

    assert await found(store, RUNNING) == []
    assert await found(store, CANCELING) == []


async def test_running_ones_of_available_workers_are_not_found(store: Database, host: Host) -> None:
    alive, dead = await host.add_worker(), await host.add_worker()
    left_out = await host.add_execution(status="running", worker=alive)
    wanted = await host.add_execution(status="running", worker=dead)
    await make_old(host, [left_out, wanted])

    assert [one.id for one in await found(store, RUNNING, available=[alive])] == [wanted]


async def test_one_that_the_database_refused_is_left_out_until_it_is_due_or_moves(
    store: Database, host: Host
) -> None:
    refused, due, moved, shadow = ids = await host.add_executions(4)
    await make_old(host, ids)
    async with store.transaction() as tx:
        for execution_id, minutes, attempt, is_shadow in (
            (refused, 5, 0, False),
            (due, -5, 0, False),
            (moved, 5, 1, False),
            (shadow, 5, 0, True),
        ):
            updated = (await host.execution(execution_id))["updated"]
            record = a_record(
                execution_id,
                attempt_updated_at=updated - timedelta(microseconds=attempt),
                next_attempt_at=updated + timedelta(hours=1, minutes=minutes),
                is_shadow=is_shadow,
            )
            await decisions_sql.record(tx, [record])

    assert {one.id for one in await found(store)} == {due, moved, shadow}


def a_record(execution_id: int, **changes: Any) -> StaleRecord:
    moment = datetime.fromisoformat("2026-11-16T12:00:00+00:00")
    fields: dict[str, Any] = {
        "execution_id": execution_id,
        "attempt_updated_at": moment,
        "original_status": "scheduled",
        "outcome": StaleOutcome.UPDATE_FAILED,
        "worker_id": 7,
        "explanation": "because",
        "evidence": {"heartbeat_age_seconds": 91.5, "odd": "a\x00b"},
        "error": "22023: no",
        "attempts": 1,
        "next_attempt_at": moment,
        "decided_at": moment,
        "replica": "here",
    }
    return StaleRecord(**(fields | changes))


async def test_every_outcome_can_be_recorded(store: Database) -> None:
    """The check constraint of the migrations lists all of them."""
    async with store.transaction() as tx:
        await decisions_sql.record(tx, [a_record(1, outcome=outcome) for outcome in StaleOutcome])
    assert {one.outcome for one in await decisions_sql.of_execution(store, 1)} == set(StaleOutcome)


async def test_decision_is_on_record_once_per_attempt_and_outcome(store: Database) -> None:
    first = a_record(1, outcome=StaleOutcome.FAILED, explanation="first")
    async with store.transaction() as tx:
        assert await decisions_sql.record(tx, [first, a_record(2, outcome=StaleOutcome.FAILED)]) == {1, 2}
    async with store.transaction() as tx:
        assert await decisions_sql.record(tx, [a_record(1, outcome=StaleOutcome.FAILED)]) == set()
        assert await decisions_sql.record(tx, [a_record(1, outcome=StaleOutcome.FAILED, is_shadow=True)]) == {
            1
        }

    kept, shadow = await decisions_sql.of_execution(store, 1)
    assert kept.explanation == "first"
    assert kept.evidence == {"heartbeat_age_seconds": 91.5, "odd": "a\\u0000b"}
    assert shadow.is_shadow


async def test_refusal_is_brought_up_to_date_and_counted(store: Database) -> None:
    async with store.transaction() as tx:
        assert await decisions_sql.refusals(tx, 1, a_record(1).attempt_updated_at) == 0
        await decisions_sql.record(tx, [a_record(1)])
        await decisions_sql.record(tx, [a_record(1, attempts=2, error="again")])
        assert await decisions_sql.refusals(tx, 1, a_record(1).attempt_updated_at) == 2

    [kept] = await decisions_sql.of_execution(store, 1)
    assert (kept.attempts, kept.error) == (2, "again")


async def test_old_decisions_are_scanned_and_what_must_not_happen_twice_is_kept_for_longer(
    store: Database, host: Host
) -> None:
    kinds = [
        (1, StaleOutcome.FAILED, False),
        (2, StaleOutcome.ABANDONED, False),
        (3, StaleOutcome.UPDATE_FAILED, False),
        (4, StaleOutcome.REQUEST_REPUBLISHED, False),
        (5, StaleOutcome.REQUEST_REPUBLISHED, True),
    ]
    now: datetime = await host.session.fetchval("SELECT now()")

    async def kept_of(age: timedelta) -> set[int]:
        async with store.transaction() as tx:
            await tx.run("DELETE FROM own.stale_decision")
            await decisions_sql.record(
                tx,
                [
                    a_record(number, outcome=outcome, is_shadow=is_shadow, decided_at=now - age)
                    for number, outcome, is_shadow in kinds
                ],
            )
        await decisions_sql.delete_decisions(store, resolved_seconds=86_400, unresolved_seconds=30 * 86_400)
        rows = await host.session.fetch("SELECT execution_id FROM dlq_handler.stale_decision")
        return {row["execution_id"] for row in rows}

    assert await kept_of(timedelta(hours=23)) == {1, 2, 3, 4, 5}
    assert await kept_of(timedelta(hours=25)) == {3, 4}
    assert await kept_of(timedelta(days=31)) == set()


class Explaining(Transaction):
    """Answers each question with nothing, and keeps how the database would have answered it."""

    def __init__(self, tx: Transaction) -> None:
        super().__init__(tx.connection, tx.own_schema)
        self.plans: list[dict[str, Any]] = []

    async def rows(self, sql: str, **parameters: object) -> Sequence[Row[Any]]:
        [explained] = await super().rows(f"EXPLAIN (FORMAT JSON) {sql}", **parameters)
        plan = explained[0] if isinstance(explained[0], list) else json.loads(explained[0])
        self.plans.append(plan[0]["Plan"])
        return []


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.fixture(scope="module")
def shares() -> dict[str, list[tuple[str, int]]]:
    """How many rows of which status: a quiet system, and one with a great many stale executions."""
    quiet = [("completed", 15_000), ("failed", 5_000)]
    return {
        "idle": [*quiet, ("scheduled", 20), ("running", 200), ("canceling", 1)],
        "flood": [*quiet, ("scheduled", 10_000), ("running", 10_000), ("canceling", 10_000)],
    }


@asynccontextmanager
async def a_table_of(host: Host, shares: list[tuple[str, int]]) -> AsyncIterator[int]:
    worker = await host.add_worker()
    for status, count in shares:
        await host.session.execute(
            "SET session_replication_role = replica;"
            "INSERT INTO execution (action_ref, status, worker, created, updated)"
            f" SELECT 'core.echo', '{status}', {worker}, now() - n * interval '1 s', now() - n * interval '1 s'"
            f" FROM generate_series(1, {count}) AS n;"
            "SET session_replication_role = DEFAULT"
        )
    await host.session.execute("ANALYZE execution")
    yield worker


@pytest.mark.parametrize("kind", ["idle", "flood"])
async def test_every_page_is_found_along_the_index_on_status_and_updated(
    store: Database, host: Host, shares: dict[str, list[tuple[str, int]]], kind: str
) -> None:
    """Never by reading or sorting all executions: an idle look costs the same whatever the table holds."""
    rows = await host.session.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'execution'"
    )
    wanted = {row["indexname"] for row in rows if INDEX in row["indexdef"]}
    async with a_table_of(host, shares[kind]) as worker, store.transaction() as tx:
        [clock] = await tx.rows("SELECT now() AS now")
        middle = Candidate(id=1, updated=clock.now - timedelta(hours=2), worker_id=None)
        for status in SCANNED:
            for behind in (None, middle):
                explaining = Explaining(tx)
                await stale_sql.find_candidates(
                    explaining,
                    status,
                    not_after=clock.now - timedelta(seconds=60),
                    behind=behind,
                    limit=1000,
                    available=[worker],
                )
                [plan] = explaining.plans
                assert_by_index(plan, wanted)


def assert_by_index(plan: dict[str, Any], wanted: set[str]) -> None:
    on_executions = [node for node in nodes(plan) if node.get("Relation Name") == "execution"]
    assert [(node["Node Type"], node.get("Index Name") in wanted) for node in on_executions] == [
        ("Index Scan", True)
    ], json.dumps(plan, indent=1)
    # The index has no id: of rows that share their moment, and of no others, it takes a sort to order them.
    sorts = [node for node in nodes(plan) if "Sort" in node["Node Type"]]
    assert all(node["Presorted Key"] == ["e.updated"] for node in sorts), json.dumps(plan, indent=1)
