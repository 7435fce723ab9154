"""The monitor on stock Attune's tables: what it ends, what it leaves, what it writes about it."""

import asyncio
import json
from collections.abc import Collection
from dataclasses import replace

import pytest

from dlq_handler.broker.consumer import DrainTracker
from dlq_handler.broker.publish_times import PublishView
from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.explain.explain import observe_case
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import End, NotStale, StaleOutcome, Wait
from dlq_handler.workers import worker_observations_sql
from dlq_handler.workers.worker_observation import WorkerObservation
from tests.support.host_tables import Host
from tests.support.stale_world import BUSY, EMPTY, HOUR, LIMITS, UNATTENDED, StaleWorld


@pytest.fixture
def it(store: Database, host: Host) -> StaleWorld:
    return StaleWorld(store, host)


async def test_stale_execution_is_failed_recorded_and_announced_with_its_evidence(it: StaleWorld) -> None:
    worker = await it.a_dead_worker()
    stale = await it.a_stale_one(worker=worker)
    updated = (await it.host.execution(stale))["updated"]
    replica = it.a_replica()

    await replica.scan()

    row = await it.host.execution(stale)
    assert row["status"] == "failed"
    assert row["result"]["failed_by"] == "dlq_handler"
    assert row["result"]["original_status"] == "scheduled"
    [kept] = await decisions_sql.of_execution(it.store, stale)
    assert (kept.outcome, kept.attempt_updated_at, kept.worker_id) == (StaleOutcome.FAILED, updated, worker)
    assert kept.evidence == row["result"]["evidence"]
    assert kept.evidence["deadline_seconds"] == 330
    [completion] = await it.host.outbox()
    payload = json.loads(completion["body"])["payload"]
    assert (payload["execution_id"], payload["status"], payload["result"]) == (stale, "Failed", row["result"])
    assert replica.found == {("scheduled", StaleOutcome.FAILED): 1}
    assert replica.scans == 1


async def test_worker_that_lives_has_two_looks_to_come_back_to_its_queue(it: StaleWorld) -> None:
    """After a restart of the broker we may be there first, and the worker holds what it will run."""
    gone, back = await it.a_worker(queue=UNATTENDED), await it.a_worker(queue=UNATTENDED)
    no_queue = await it.a_worker(queue=None)
    ids = [await it.a_stale_one(worker=one) for one in (gone, no_queue)]
    saved = await it.a_stale_one(worker=back)
    replica = it.a_replica()
    for _ in range(2):
        await replica.scan()
        assert await it.statuses([*ids, saved]) == {"scheduled"}, "two looks in a row are one look"
    await it.looks_age(30)
    it.queue_observer.queues[back] = BUSY
    await replica.scan()
    assert await it.statuses(ids) == {"failed"}
    assert await it.status(saved) == "scheduled"


async def test_looks_that_know_nothing_of_a_missing_queue_do_not_take_the_first_look_away(
    it: StaleWorld,
) -> None:
    """The broker is asked twice about a missing queue, and not in between."""
    worker = await it.a_worker(queue=None)
    stale = await it.a_stale_one(worker=worker)
    replica = it.a_replica()
    await replica.scan()
    del it.queue_observer.queues[worker]
    for _ in range(3):
        await it.looks_age(10)
        await replica.scan()
    await it.looks_age(10)
    assert await it.status(stale) == "scheduled"

    it.queue_observer.queues[worker] = None
    await replica.scan()

    assert await it.status(stale) == "failed"


async def test_a_scan_asks_once_about_a_missing_queue_however_many_pages_it_has(it: StaleWorld) -> None:
    worker = await it.a_dead_worker(queue=None)
    ids = await it.stale_ones(5, worker=worker)

    await it.a_replica(batch_size=1).scan()

    assert await it.statuses(ids) == {"failed"}
    assert it.queue_observer.asked == [{worker}]


async def test_no_refused_question_is_spent_while_own_publishes_prove_nothing(it: StaleWorld) -> None:
    """Only a worker that sends heartbeats needs that proof, and not beyond the limit for messages that are held."""
    alive, held, dead = await it.a_worker(queue=None), await it.a_worker(), await it.a_dead_worker()
    stale = await it.a_stale_one(worker=alive)
    await it.a_stale_one(worker=held, age_seconds=3 * HOUR)
    await it.a_stale_one(worker=dead)
    replica = it.a_replica()
    replica.publishes = PublishView(quick_seconds=329, confirmed_seconds_ago=1)
    await replica.scan()
    await it.looks_age(40)
    await replica.scan()
    assert (it.queue_observer.asked, it.queue_observer.asked_quietly) == ([{held, dead}], [{alive}, {alive}])

    replica.publishes = PublishView(quick_seconds=330, confirmed_seconds_ago=1)
    await replica.scan()
    assert await it.status(stale) == "scheduled", "what was known quietly is minutes old, and no look"
    await it.looks_age(40)
    await replica.scan()
    assert await it.status(stale) == "failed"


async def test_nothing_is_ended_by_heartbeats_or_held_for_too_long_while_the_connection_is_young(
    it: StaleWorld,
) -> None:
    """Whether the worker is alive is unknown: its heartbeats were not watched for long enough."""
    worker = await it.a_dead_worker(queue=BUSY)
    ids = [
        await it.a_stale_one(worker=await it.a_worker(queue=BUSY), age_seconds=24 * HOUR),
        await it.a_stale_one(worker=worker, age_seconds=24 * HOUR),
        await it.a_stale_one(worker=worker, status="running"),
    ]
    replica = it.a_replica()
    replica.gate.watched = 0.2
    for _ in range(2):
        await replica.scan()
        await it.looks_age(30)
    assert await it.statuses(ids) == {"scheduled", "running"}

    replica.gate.watched = HOUR
    for _ in range(2):
        await replica.scan()
        await it.looks_age(30)
    assert await it.statuses(ids) == {"failed", "abandoned"}


async def test_an_empty_or_unattended_queue_proves_nothing_unless_own_publishes_were_quick(
    it: StaleWorld,
) -> None:
    ids = [await it.a_stale_one(worker=await it.a_worker(queue=queue)) for queue in (EMPTY, UNATTENDED)]
    replica = it.a_replica()
    replica.publishes = PublishView(quick_seconds=329, confirmed_seconds_ago=1)
    for _ in range(2):
        await replica.scan()
        await it.looks_age(30)
    assert await it.statuses(ids) == {"scheduled"}

    replica.publishes = PublishView(quick_seconds=330, confirmed_seconds_ago=1)
    await replica.scan()
    assert await it.statuses(ids) == {"failed"}


async def test_what_may_still_be_run_is_left_alone(it: StaleWorld) -> None:
    alive, unknown = await it.a_worker(queue=BUSY), await it.a_worker()
    del it.queue_observer.queues[unknown]
    slow_queue = await it.a_worker(queue=replace(UNATTENDED, ttl_ms=4_000_000))
    ids = [
        await it.a_stale_one(worker=alive),
        await it.a_stale_one(worker=unknown),
        await it.a_stale_one(worker=slow_queue),
        await it.a_stale_one(worker=await it.a_dead_worker(), age_seconds=300),
        await it.a_stale_one(status="running", worker=alive),
        await it.a_stale_one(status="canceling", worker=alive, age_seconds=500),
    ]
    # Parents of workflows, and what has ended.
    ids += [await it.a_stale_one(status=status) for status in ("running", "canceling", "failed", "completed")]

    replica = it.a_replica()
    for _ in range(3):
        await replica.scan()
        await it.looks_age(60)

    assert await it.changes() == []
    assert await it.host.outbox() == []
    assert await it.decisions() == []


async def test_running_execution_is_abandoned_at_the_second_look_also_by_another_leader(
    it: StaleWorld,
) -> None:
    worker = await it.a_dead_worker()
    stale = await it.a_stale_one(status="running", worker=worker)
    one, two = it.a_replica(name="one"), it.a_replica(name="two")
    await one.scan()
    await one.scan()
    assert await it.status(stale) == "running", "two looks in a row are one look"
    await it.looks_age(30)
    await it.host.session.execute("UPDATE dlq_handler.lease SET until = now() - interval '1 s'")

    await two.scan()

    row = await it.host.execution(stale)
    assert row["status"] == "abandoned"
    assert row["result"].keys() == {
        "error",
        "abandoned_by",
        "original_status",
        "worker",
        "reconciled_at",
        "evidence",
    }
    assert row["result"]["worker"] == worker
    [kept] = await it.decisions()
    assert (kept["outcome"], kept["replica"]) == ("abandoned", "two")


async def test_one_look_serves_all_pages_of_a_scan(it: StaleWorld) -> None:
    """Looking again on each page would begin a new pair of looks, and only the first page would ever end."""
    worker = await it.a_worker(queue=EMPTY)
    ids = await it.stale_ones(5, worker=worker)
    replica = it.a_replica(batch_size=1)
    await replica.scan()
    await it.looks_age(30)
    await replica.scan()
    assert await it.statuses(ids) == {"failed"}


async def test_scan_takes_page_after_page_and_every_row_once(it: StaleWorld) -> None:
    worker = await it.a_dead_worker()
    ids = await it.stale_ones(25, worker=worker)
    replica = it.a_replica(batch_size=10)
    await replica.scan()
    assert await it.changes() == [(one, "failed") for one in sorted(ids)]
    assert len(it.queue_observer.asked) == 3
    assert len({row["message_id"] for row in await it.host.outbox()}) == 25
    await replica.scan()
    assert len(await it.changes()) == 25
    assert replica.scans == 2


async def test_two_pages_are_written_side_by_side(it: StaleWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await it.stale_ones(30, worker=await it.a_dead_worker())
    replica = it.a_replica(batch_size=10)
    fence, both, written = replica.leadership.fence, asyncio.Barrier(2), list[int]()

    async def fence_together(tx: Transaction) -> None:
        written.append(len(await tx.rows("SELECT id FROM own.stale_decision")))
        if len(written) > 1:
            await both.wait()
        await fence(tx)

    monkeypatch.setattr(replica.leadership, "fence", fence_together)
    async with asyncio.timeout(30):
        await replica.scan()
    assert await it.statuses(ids) == {"failed"}
    assert written == [10, 20, 20], "each has written its own before either takes the lease"


async def test_pages_with_a_first_look_at_a_worker_come_one_after_the_other(
    it: StaleWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age_seconds in (3 * HOUR, 2 * HOUR, HOUR):
        await it.stale_ones(10, worker=await it.a_dead_worker(), age_seconds=age_seconds)
    open_at_once, most = 0, 0
    keep = worker_observations_sql.keep_observations

    async def keep_and_count(
        tx: Transaction, looks: Collection[WorkerObservation], *, is_shadow: bool
    ) -> None:
        nonlocal open_at_once, most
        open_at_once += 1
        most = max(most, open_at_once)
        await keep(tx, looks, is_shadow=is_shadow)
        # In which the other one would come here too, if it were let in.
        for _ in range(200):
            await tx.run("SELECT 1")
        open_at_once -= 1

    monkeypatch.setattr(worker_observations_sql, "keep_observations", keep_and_count)
    await it.a_replica(batch_size=10).scan()
    assert len(await it.changes()) == 30
    assert most == 1


async def test_those_that_wait_do_not_keep_the_scan_from_those_behind_them(it: StaleWorld) -> None:
    await it.stale_ones(10, worker=await it.a_worker(), age_seconds=HOUR + 60)
    ids = await it.stale_ones(5, worker=await it.a_dead_worker())
    async with asyncio.timeout(30):
        await it.a_replica(batch_size=5).scan()
    assert await it.statuses(ids) == {"failed"}
    assert len(await it.changes()) == 5


async def test_explaining_one_execution_shows_what_the_scan_would_do_and_changes_nothing(
    it: StaleWorld,
) -> None:
    ending = await it.a_stale_one(worker=await it.a_dead_worker())
    lost = await it.a_stale_one(worker=await it.a_worker(queue=EMPTY))
    parent = await it.a_stale_one(status="running")

    async def think(execution_id: int) -> object:
        case = await observe_case(it.store, it.queue_observer, LIMITS, HOUR, execution_id)
        return None if case is None else decide_stale(case)

    assert isinstance(await think(ending), End)
    waits = await think(lost)
    assert isinstance(waits, Wait)
    assert waits.until is not None
    assert isinstance(await think(parent), NotStale)
    assert await think(10**9) is None
    assert await it.host.session.fetch("SELECT * FROM dlq_handler.worker_observation") == []
    assert await it.changes() == []

    await it.a_replica().scan()
    await it.looks_age(30)
    assert isinstance(await think(lost), End), "by the looks that the leader has taken"


async def test_execution_of_a_deleted_worker_waits_for_the_longest_ttl_known(it: StaleWorld) -> None:
    """Longer than what counts while no TTL is known, so that the two cannot be confused."""
    deleted = await it.a_worker()
    young, old = [await it.a_stale_one(worker=deleted) for _ in range(2)]
    await it.host.session.execute("DELETE FROM worker")
    await it.make_old([young], age_seconds=2 * HOUR)
    await it.make_old([old], age_seconds=2 * HOUR + LIMITS.after_ttl_seconds + 1)
    it.queue_observer.longest_ttl = int(2 * HOUR * 1000)

    await it.a_replica().scan()

    assert await it.status(young) == "scheduled"
    assert await it.status(old) == "failed"


async def test_execution_of_a_deleted_worker_waits_while_no_ttl_is_known(it: StaleWorld) -> None:
    """As after a restart without the management API. The queues of other workers are asked for theirs."""
    late, prompt = await it.a_dead_worker(), await it.a_worker()
    deleted = await it.a_worker()
    young, old = [await it.a_stale_one(worker=deleted) for _ in range(2)]
    await it.host.session.execute("DELETE FROM worker WHERE id = $1", deleted)
    await it.make_old([young])
    await it.make_old([old], age_seconds=LIMITS.monitor.held_timeout_seconds)
    it.queue_observer.longest_ttl = None

    await it.a_replica().scan()

    assert it.queue_observer.asked_for_ttl == [[prompt, late]]
    assert await it.status(young) == "scheduled"
    assert await it.status(old) == "failed", "the monitor does not wait without end"
    case = await observe_case(it.store, it.queue_observer, LIMITS, HOUR, young)
    assert case is not None
    assert isinstance(decide_stale(case), Wait)
    assert it.queue_observer.asked_for_ttl[-1] == [prompt, late]


async def test_nothing_is_decided_before_the_intake_is_drained(it: StaleWorld) -> None:
    seconds, worker = [0.0], await it.a_dead_worker()
    ids = [
        await it.a_stale_one(worker=worker),
        await it.a_stale_one(worker=worker, status="running"),
        await it.a_stale_one(worker=worker, status="canceling"),
    ]
    drain = DrainTracker(lambda: seconds[0])
    drain.note_opened(ready=2, prefetch=10)
    replica = it.a_replica(intake=drain)
    for _ in range(3):
        seconds[0] += 100
        await replica.scan()
        await it.looks_age(30)
    assert await it.changes() == []

    drain.note_acknowledged(2)
    for _ in range(2):
        await replica.scan()
        await it.looks_age(30)
    assert await it.statuses(ids) == {"failed", "abandoned", "cancelled"}
    assert all("intake_undrained_seconds" not in row["evidence"] for row in await it.decisions())


async def test_after_one_deadline_without_a_drained_intake_the_monitor_goes_on_and_says_so(
    it: StaleWorld,
) -> None:
    seconds = [0.0]
    stale = await it.a_stale_one(worker=await it.a_dead_worker())
    replica = it.a_replica(intake=DrainTracker(lambda: seconds[0]))
    seconds[0] = 329
    await replica.scan()
    assert await it.status(stale) == "scheduled"
    seconds[0] = 331
    await replica.scan()
    assert await it.status(stale) == "failed"
    [kept] = await it.decisions()
    assert kept["evidence"]["intake_undrained_seconds"] == 331
