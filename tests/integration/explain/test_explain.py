"""What an explanation reads: the story and the decision of one row, and who leads."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.database import lease_sql
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import database_time
from dlq_handler.endings import outbox_sql
from dlq_handler.explain.explain import Explanation, QueueObserver, explain
from dlq_handler.explain.options import ExplainPolicy
from dlq_handler.host.worker import QueueObservation, WorkerQueueNames
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.workers import service_observations_sql
from dlq_handler.workers.service_observation import ServiceObservation
from tests.support.host_tables import Host, commit_batch
from tests.support.stale_world import EMPTY, LIMITS, UNATTENDED, StaleWorld

EXPLAIN = ExplainPolicy(
    limits=LIMITS,
    brake=BrakeOptions(max_decisions_per_minute=10, hold_seconds=600),
    names=WorkerQueueNames(),
    lease="leader",
    is_monitored=True,
    is_shadow=False,
)


@pytest.fixture
def it(store: Database, host: Host) -> StaleWorld:
    return StaleWorld(store, host)


class Meanwhile:
    """While the broker is asked, the row moves: at each look by the next one of these statements."""

    def __init__(self, it: StaleWorld, *statements: str) -> None:
        self._it, self._statements = it, list(statements)

    async def observe(self, worker_ids: Collection[int]) -> Mapping[int, QueueObservation | None]:
        if self._statements:
            await self._it.host.session.execute(self._statements.pop(0))
        return await self._it.queue_observer.observe(worker_ids)

    async def longest_ttl_ms(self, worker_ids: Sequence[int] = ()) -> int | None:
        return await self._it.queue_observer.longest_ttl_ms(worker_ids)

    async def count_queue(self, queue: str) -> QueueCounts | None:
        return await self._it.queue_observer.count_queue(queue)


async def explained(
    it: StaleWorld, execution_id: int, queue_observer: QueueObserver | None = None
) -> Explanation:
    explanation = await explain(
        it.store,
        execution_id,
        EXPLAIN,
        observer=queue_observer or it.queue_observer,
    )
    assert explanation is not None
    return explanation


async def test_row_that_ends_meanwhile_is_shown_as_ended(it: StaleWorld) -> None:
    number = await it.a_stale_one(worker=await it.a_dead_worker())
    found = await explained(it, number, Meanwhile(it, "UPDATE execution SET status = 'failed'"))
    assert found.records.execution is not None
    assert found.records.execution.status == "failed"
    assert found.waiting is None


async def test_row_that_starts_meanwhile_is_shown_as_running(it: StaleWorld) -> None:
    number = await it.a_stale_one(worker=await it.a_worker())
    found = await explained(it, number, Meanwhile(it, "UPDATE execution SET status = 'running'"))
    assert found.records.execution is not None
    assert found.records.execution.status == "running"
    assert found.waiting is not None
    assert found.waiting.explanation.startswith("it runs; ")


async def test_row_that_never_stands_still_is_not_decided(it: StaleWorld) -> None:
    number = await it.a_stale_one(worker=await it.a_worker())
    moves = ["UPDATE execution SET status = 'running'", "UPDATE execution SET status = 'scheduled'"] * 2
    found = await explained(it, number, Meanwhile(it, *moves))
    assert found.waiting is not None
    assert "again" in found.waiting.explanation


async def test_lease_shows_whether_a_replica_scans(it: StaleWorld) -> None:
    number = await it.a_stale_one(worker=await it.a_dead_worker())
    without_lease = (await explained(it, number)).waiting
    await lease_sql.take(it.store, "leader", holder="one", seconds=60)
    of_one = (await explained(it, number)).waiting
    async with it.store.transaction() as tx:
        await tx.run("UPDATE own.lease SET until = clock_timestamp() - interval '1 s'")
        ended = await lease_sql.read_lease(tx, "leader")
    of_the_dead = (await explained(it, number)).waiting
    assert ended is not None
    assert without_lease is not None
    assert of_one is not None
    assert of_the_dead is not None
    assert "no lease is held" in (without_lease.unwatched or "")
    assert of_one.unwatched is None
    assert of_one.explanation.startswith("the next scan makes it failed")
    assert f"the lease ended at {ended.until:%Y-%m-%d %H:%M:%S}Z" in (of_the_dead.unwatched or "")
    # Not the whole text: it names the age of the heartbeat, and a second may pass between the two.
    for waiting in (without_lease, of_the_dead):
        assert waiting.explanation.startswith("a scan would make it failed")


async def test_withheld_completion_event_differs_from_a_confirmed_one(it: StaleWorld) -> None:
    withheld, confirmed = await it.host.add_executions(2)
    letters = [await it.host.letter_for(number) for number in (withheld, confirmed)]
    entries = await commit_batch(it.store, letters, holder="one")
    ids = {entry.message.execution_id: entry.id for entry in entries}
    await outbox_sql.mark_withheld(it.store, [ids[withheld]])
    await outbox_sql.mark_confirmed(it.store, [ids[confirmed]])

    [first] = (await explained(it, withheld)).records.outbox
    [second] = (await explained(it, confirmed)).records.outbox
    assert (first.is_withheld, first.error) == (True, "withheld: Attune has already answered it with a retry")
    assert (second.is_withheld, second.error) == (False, None)


async def test_execution_that_was_requested_again_says_how_often_and_when_next(it: StaleWorld) -> None:
    number = await it.a_stale_one(status="requested")
    await it.host.session.execute(
        "INSERT INTO dlq_handler.repeated_request (execution_id, is_shadow, requests, last_at)"
        " VALUES ($1, false, 3, now())",
        number,
    )
    waiting = (await explained(it, number)).waiting
    assert waiting is not None
    assert waiting.explanation == "requested again 3 of at most 20 times, and still not scheduled"
    assert waiting.until is not None
    assert 3000 < (waiting.until - await it.host.session.fetchval("SELECT now()")).total_seconds() <= 3600

    await it.host.session.execute("UPDATE dlq_handler.repeated_request SET requests = 20")
    waiting = (await explained(it, number)).waiting
    assert waiting is not None
    assert waiting.explanation.startswith(
        "requested again 20 times and never scheduled; dlq-handler stops at"
    )
    assert "Start a worker" in waiting.explanation
    assert waiting.until is None


async def test_a_worker_that_reports_without_consuming_is_named(it: StaleWorld) -> None:
    worker = await it.a_worker(queue=UNATTENDED)
    [number] = await it.host.add_executions(1, worker=worker)

    async def notes(*, first_heartbeat: datetime | None) -> str:
        async with it.store.transaction() as tx:
            now = await database_time(tx)
            look = ServiceObservation(
                queue=f"worker.{worker}.executions",
                unconsumed_since=datetime(2026, 3, 1, 1, 5, tzinfo=UTC),
                first_heartbeat=first_heartbeat,
            )
            await service_observations_sql.keep_observations(tx, changed=[look], removed=(), at=now)
        waiting = (await explained(it, number)).waiting
        assert waiting is not None
        return "; ".join(waiting.notes)

    heartbeat = await it.host.session.fetchval("SELECT last_heartbeat FROM worker WHERE id = $1", worker)
    named = f"worker {worker} reports without consuming its queue since 2026-03-01 01:05:00Z: restart it"
    assert named in await notes(first_heartbeat=heartbeat - timedelta(seconds=30))
    assert named not in await notes(first_heartbeat=heartbeat), "one heartbeat proves nothing"
    it.queue_observer.queues[worker] = EMPTY
    assert named not in await notes(first_heartbeat=heartbeat - timedelta(seconds=30)), "it consumes"


async def test_a_request_without_an_executor_that_consumes_says_to_restart_it(it: StaleWorld) -> None:
    number = await it.a_stale_one(status="requested")
    it.queue_observer.requests = QueueCounts(consumers=0, ready=1)
    waiting = (await explained(it, number)).waiting
    assert waiting is not None
    assert any("restart Attune's executor" in note for note in waiting.notes)
    it.queue_observer.requests = None
    unknown = (await explained(it, number)).waiting
    assert unknown is not None
    assert not any("restart" in note for note in unknown.notes), "the broker was not asked"
