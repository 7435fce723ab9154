"""PostgreSQL holds moments that Python does not: infinity, years before 1 and after 9999. None of them stops a loop."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.database.engine import Database
from dlq_handler.explain.explain import explain
from dlq_handler.host import workers_sql
from dlq_handler.host.workers_sql import read_workers
from dlq_handler.rooms import new_metrics
from dlq_handler.timeouts.decision import StaleOutcome
from dlq_handler.workers.queue_observer import WorkerQueueObserver
from dlq_handler.workers.watch import WorkerWatch
from tests.integration.explain.test_explain import EXPLAIN
from tests.support.builders import a_dead_letter
from tests.support.host_tables import Host, commit_batch
from tests.support.stale_world import HOUR, LIMITS, StaleWorld

ODD_MOMENTS = ["-infinity", "infinity", "4000-01-01 BC", "294276-01-01"]


class NothingToCount(WorkerQueueObserver):
    def __init__(self) -> None:
        self.broker_error = None

    async def count(self, worker_ids: Collection[int]) -> dict[int, QueueCounts | None]:
        return {}


@pytest.fixture
def it(store: Database, host: Host) -> StaleWorld:
    return StaleWorld(store, host)


async def write_moment(it: StaleWorld, table: str, column: str, row_id: int, moment: str) -> None:
    """Without the triggers, one of which would overwrite `updated`."""
    await it.host.session.execute(
        "SET session_replication_role = replica;"
        f"UPDATE {table} SET {column} = '{moment}' WHERE id = {row_id};"
        "SET session_replication_role = DEFAULT"
    )


@pytest.mark.parametrize("moment", ODD_MOMENTS)
async def test_heartbeat_that_is_no_moment_is_unknown_and_the_other_workers_are_decided(
    it: StaleWorld, moment: str
) -> None:
    odd, dead = await it.a_worker(), await it.a_dead_worker()
    await write_moment(it, "worker", "last_heartbeat", odd, moment)
    kept = [await it.a_stale_one(worker=odd, status="running"), await it.a_stale_one(worker=odd)]
    stale = await it.a_stale_one(worker=dead, status="running")
    replica = it.a_replica()

    for _ in range(2):
        await replica.scan()
        await it.looks_age(30)

    assert replica.found == {("running", StaleOutcome.ABANDONED): 1}
    assert await it.status(stale) == "abandoned"
    assert [await it.status(one) for one in kept] == ["running", "scheduled"]


@pytest.mark.parametrize("moment", ODD_MOMENTS)
async def test_every_statement_that_reads_a_heartbeat_reads_it(it: StaleWorld, moment: str) -> None:
    odd = await it.a_worker()
    await it.a_stale_one(worker=odd)
    await write_moment(it, "worker", "last_heartbeat", odd, moment)
    watch = WorkerWatch(
        it.store,
        NothingToCount(),
        cast("Any", SimpleNamespace(is_leader=True)),
        cast("Any", SimpleNamespace(watched_seconds=HOUR)),
        availability=LIMITS.availability,
        confirm_after_seconds=30,
        metrics=new_metrics(),
    )

    await watch.tick()

    async with it.store.transaction() as tx:
        [found] = (await read_workers(tx)).values()
    [listed] = await workers_sql.list_workers(it.store)
    observed_at, _ = await workers_sql.read_worker_and_time(it.store, odd)
    assert observed_at is not None
    for one in (found, listed.worker, observed_at):
        assert one.heartbeat_age_seconds is None, "a moment out of range says nothing about the worker"
        assert one.last_heartbeat is None


@pytest.mark.parametrize("moment", ODD_MOMENTS)
async def test_execution_with_such_a_moment_does_not_stop_the_scan_or_an_explanation(
    it: StaleWorld, moment: str
) -> None:
    worker = await it.a_dead_worker()
    odd, stale = await it.stale_ones(2, worker=worker)
    for column in ("updated", "created", "started_at"):
        await write_moment(it, "execution", column, odd, moment)

    await it.a_replica(batch_size=1).scan()
    found = await explain(it.store, odd, EXPLAIN, observer=it.queue_observer)
    await commit_batch(it.store, [a_dead_letter(key="of-the-odd-one", execution_id=odd, worker_id=worker)])

    assert await it.status(stale) == "failed"
    assert found is not None
    assert [row["key"] for row in await it.host.letters()] == ["of-the-odd-one"]
    [listed] = await workers_sql.list_workers(it.store)
    assert listed.scheduled + listed.running <= 1
