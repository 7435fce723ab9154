"""Missing completion events are published once, to a real listener; executions that a late worker reverted are seen."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import isnan
from typing import Any

import aio_pika
import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_queue
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership, LeaseLost
from dlq_handler.database.transaction import Transaction
from dlq_handler.endings.options import RecordOptions
from dlq_handler.endings.writers import EventWriter, ShadowWriter
from dlq_handler.errors import GateClosed, Unavailable
from dlq_handler.host import reconcile_sql as store_reconcile
from dlq_handler.host.ends import EndWithoutEvent
from dlq_handler.host.execution import Page, Place
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.gate import GateCause
from dlq_handler.timeouts.decisions_sql import count_reverted_by_worker
from dlq_handler.timeouts.findings import ReconcileFinding
from dlq_handler.timeouts.leader_scan import LeaderScan
from dlq_handler.timeouts.message_recorders import EndPublisher
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.timeouts.reconciler import Reconciler, SlotWatch
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.dead_letter_handler import StockDeadLetterHandler
from sandbox.attune.executor import StockExecutor
from sandbox.attune.topology import COMPLETED_QUEUE, DLX_QUEUE
from tests.support.builders import COMPLETIONS
from tests.support.deciding import letter_ender
from tests.support.eventually import eventually
from tests.support.fail_safe import a_gate
from tests.support.host_tables import Host
from tests.support.stale_world import EMPTY, HOUR, SetQueue, StaleWorld, publish_outbox

IDLE = QueueCounts(ready=0, consumers=1)
DAY = 86_400.0


def stock_result(expired_seconds_ago: float) -> dict[str, object]:
    """As the stock handler writes it."""
    expired_at = datetime.now(UTC) - timedelta(seconds=expired_seconds_ago)
    return {"error": "Worker queue TTL expired", "message": "…", "expired_at": expired_at.isoformat()}


class Fixture(StaleWorld):
    def __init__(self, store: Database, host: Host) -> None:
        super().__init__(store, host)
        self.metrics = new_metrics()
        self.queues = SetQueue(IDLE)
        self.leadership = Leadership(store, "leader", lease_seconds=300, holder="one", metrics=new_metrics())
        self.gate = a_gate(store)
        self.reconciler = self.a_reconciler()

    def a_reconciler(self, *, is_shadow: bool = False, missing_event_seconds: float = 60) -> Reconciler:
        return Reconciler(
            LeaderScan(self.store, self.leadership, self.gate),
            MonitorOptions(batch_size=3, missing_event_seconds=missing_event_seconds),
            EndPublisher(
                self.store,
                ShadowWriter(self.gate) if is_shadow else EventWriter(),
                self.leadership,
                RecordOptions(replica="one", destination=COMPLETIONS, is_shadow=is_shadow),
                self.metrics,
                batch_size=3,
            ),
            self.queues,
            self.metrics,
            lookback_seconds=DAY,
        )

    async def reconcile(self, reconciler: Reconciler | None = None) -> None:
        await self.leadership.tick()
        await (reconciler or self.reconciler).tick()

    async def announced(self) -> list[int]:
        return sorted(row["execution_id"] for row in await self.host.outbox())

    async def outcomes(self) -> list[tuple[int, str]]:
        return [(row["execution_id"], row["outcome"]) for row in await self.decisions()]

    def counted(self, finding: str) -> float | None:
        return self.metrics.registry.get_sample_value("dlq_handler_reconciled_total", {"finding": finding})

    def leaked(self) -> float | None:
        return self.metrics.registry.get_sample_value("dlq_handler_slots_leaked")

    async def slot(self, execution_id: int, *, status: str = "active", age_seconds: float = HOUR) -> None:
        session = self.host.session
        await session.execute(
            "INSERT INTO pack (ref, label, version) VALUES ('core', 'core', '1.0.0') ON CONFLICT DO NOTHING;"
            "INSERT INTO action (ref, pack, pack_ref, label, entrypoint)"
            " SELECT 'core.echo', id, ref, ref, ref FROM pack ON CONFLICT DO NOTHING;"
            "INSERT INTO execution_admission_state (action_id, max_concurrent)"
            " SELECT id, 1 FROM action ON CONFLICT DO NOTHING"
        )
        await session.execute(
            "INSERT INTO execution_admission_entry (state_id, execution_id, status, queue_order, activated_at)"
            " SELECT id, $1, $2, $1, now() - make_interval(secs => $3) FROM execution_admission_state",
            execution_id,
            status,
            age_seconds,
        )

    async def ended(self, count: int = 1, *, status: str = "completed", **columns: Any) -> list[int]:
        """Ended an hour ago, unless `age_seconds` says otherwise."""
        return await self.stale_ones(count, status=status, **columns)

    async def silent(self, count: int = 1, *, age_seconds: float = HOUR, **columns: Any) -> list[int]:
        """Failed by the stock handler."""
        result = stock_result(age_seconds)
        return await self.ended(count, status="failed", result=result, age_seconds=age_seconds, **columns)

    async def delete(self, worker: int) -> None:
        """Moves the `updated` of every execution that it ever had."""
        await self.host.session.execute("DELETE FROM worker WHERE id = $1", worker)

    async def publish_all(self) -> None:
        await self.host.session.execute("UPDATE dlq_handler.outbox SET confirmed_at = now()")

    async def run_again(self, execution_id: int, status: str = "running", result: object = None) -> None:
        """As a late worker does it: whatever the row says."""
        await self.host.session.execute(
            "UPDATE execution SET status = $2::execution_status, result = coalesce($3, result) WHERE id = $1",
            execution_id,
            status,
            result,
        )


@pytest.fixture
async def it(store: Database, host: Host) -> Fixture:
    return Fixture(store, host)


# ------------------------------------------------------------------------------------------------ held slots


@pytest.mark.parametrize("status", ["completed", "cancelled", "abandoned"])
async def test_slot_held_by_an_ended_execution_is_published_once(it: Fixture, status: str) -> None:
    [one] = await it.ended(status=status, result={"exit_code": 0})
    await it.slot(one)
    await it.reconcile()
    await it.reconcile()
    [completion] = await it.host.outbox()
    payload = json.loads(completion["body"])["payload"]
    assert (payload["execution_id"], payload["status"]) == (one, status.capitalize())
    assert payload["result"] == {"exit_code": 0}
    assert await it.outcomes() == [(one, "completion_published")]
    assert it.counted("held_slot") == 1


async def test_slot_is_left_alone_while_a_listener_may_still_free_it(it: Fixture) -> None:
    [running] = await it.stale_ones(status="running")
    [task] = await it.ended(workflow_task={"task_name": "build"})
    [young_slot, just_ended, in_line] = await it.ended(3)
    await it.make_old([just_ended], 60)
    await it.slot(running)
    await it.slot(task)
    await it.slot(young_slot, age_seconds=60)
    await it.slot(just_ended)
    await it.slot(in_line, status="queued")
    await it.reconcile()
    assert await it.announced() == []


@pytest.mark.parametrize(
    "queue",
    [None, QueueCounts(ready=1, consumers=1), QueueCounts(ready=0, consumers=0)],
    ids=["missing", "not empty", "without a consumer"],
)
async def test_slots_mean_nothing_unless_the_listener_is_idle(it: Fixture, queue: QueueCounts | None) -> None:
    [one] = await it.ended()
    await it.slot(one)
    it.queues.counts = queue
    await it.reconcile()
    assert await it.announced() == []


async def test_slot_waits_for_our_own_completion_event_that_is_not_published_yet(it: Fixture) -> None:
    [one] = await failed_by_letter(it, await it.a_worker())
    await it.make_old([one])
    await it.slot(one)
    await it.reconcile()
    assert await it.announced() == [one]
    await it.publish_all()
    await it.reconcile()
    assert await it.announced() == [one, one], (
        "published, and its slot is still taken: its listener lost the completion event"
    )


async def test_slot_is_published_again_only_if_its_row_moved_and_a_day_went_by(it: Fixture) -> None:
    """A row that others touch again and again must not become a row of completion events."""
    [one] = await it.ended()
    await it.slot(one)
    await it.reconcile()
    await it.publish_all()
    await it.make_old([one], HOUR - 1)
    await it.reconcile()
    assert await it.announced() == [one], "its row was touched"
    await it.host.session.execute(
        "UPDATE dlq_handler.stale_decision SET decided_at = decided_at - interval '25 hours'"
    )
    await it.reconcile()
    assert await it.announced() == [one, one], "its slot is still taken: that notice was lost"


async def test_result_of_megabytes_stays_in_the_row(it: Fixture) -> None:
    [one] = await it.ended()
    await it.slot(one)
    await it.host.session.execute(
        "SET session_replication_role = replica;"
        "UPDATE execution SET result = jsonb_build_object('stdout',"
        f" (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 40000) n)) WHERE id = {one};"
        "SET session_replication_role = DEFAULT"
    )
    await it.reconcile()
    [completion] = await it.host.outbox()
    assert json.loads(completion["body"])["payload"]["result"] is None


async def test_leaked_slots_are_counted_until_they_are_freed_also_after_their_event(it: Fixture) -> None:
    watch = SlotWatch(it.store, MonitorOptions(), it.metrics)
    assert isnan(it.leaked() or 0), "the slots were not counted yet"
    [running] = await it.stale_ones(status="running")
    [task] = await it.ended(workflow_task={"task_name": "build"})
    [one, young] = await it.ended(2)
    for held in (running, task, one):
        await it.slot(held)
    await it.slot(young, age_seconds=60)
    await it.reconcile()
    await watch.tick()
    assert it.leaked() == 2
    await it.host.session.execute("DELETE FROM execution_admission_entry WHERE execution_id = $1", one)
    await watch.tick()
    assert it.leaked() == 1


async def test_host_without_admission_tables_has_no_slots(it: Fixture) -> None:
    await it.host.session.execute("DROP TABLE execution_admission_entry, execution_admission_state")
    [one] = await it.silent()
    await it.reconcile()
    assert await it.announced() == [one]
    await SlotWatch(it.store, MonitorOptions(), it.metrics).tick()
    assert it.leaked() == 0


# ------------------------------------------------------------------------------------------------ silent ends


async def test_ends_that_the_stock_handler_did_not_publish_are_published_once(it: Fixture) -> None:
    ids = await it.silent(7)
    await it.reconcile()
    await it.reconcile()
    assert await it.announced() == ids
    assert it.counted("missing_event") == 7


async def test_failures_that_are_signed_too_young_or_too_old_are_left_alone(
    it: Fixture,
) -> None:
    await it.ended(status="failed", result=stock_result(HOUR) | {"failed_by": "dlq_handler"})
    await it.ended(status="failed", result={"error": "exit code 1"})
    await it.ended(status="failed", result=["Worker queue TTL expired"])
    await it.ended(status="failed")
    await it.silent(age_seconds=30)
    await it.silent(age_seconds=2 * DAY)
    await it.reconcile()
    assert await it.announced() == []


async def test_missing_event_is_not_published_again_because_its_worker_was_deleted(it: Fixture) -> None:
    worker = await it.a_worker()
    ids = await it.silent(4, worker=worker)
    await it.reconcile()
    await it.publish_all()
    await it.delete(worker)
    await it.make_old(ids, 120)
    await it.reconcile(it.a_reconciler())
    assert await it.announced() == ids


async def test_deleted_worker_brings_back_no_silent_end_of_months_ago(it: Fixture) -> None:
    worker = await it.a_worker()
    ids = await it.silent(4, worker=worker, age_seconds=90 * DAY)
    await it.delete(worker)
    await it.make_old(ids, 120)
    await it.reconcile()
    assert await it.announced() == []


async def test_workflow_task_is_published_too_unless_the_host_has_retried_it(it: Fixture) -> None:
    """Without its event its workflow waits; but a second event of a retried task makes a second retry."""
    [waits] = await it.silent(workflow_task={"task_name": "build", "retry_count": 0})
    [retried] = await it.silent(workflow_task={"task_name": "test", "retry_count": 0})
    await it.host.add_execution(status="requested", original_execution=retried)
    await it.reconcile()
    assert await it.announced() == [waits]


async def test_shadow_records_what_it_would_have_announced(it: Fixture) -> None:
    [one] = await it.silent()
    shadow = it.a_reconciler(is_shadow=True)
    await it.reconcile(shadow)
    await it.reconcile(shadow)
    assert await it.announced() == []
    [decision] = await it.decisions()
    assert (decision["execution_id"], decision["is_shadow"]) == (one, True)


async def test_only_the_leader_publishes(it: Fixture) -> None:
    await it.silent()
    other = Leadership(it.store, "leader", lease_seconds=300, holder="other", metrics=new_metrics())
    await other.tick()
    await it.reconcile()
    assert await it.announced() == []
    it.leadership._good_until = float("inf")
    with pytest.raises(LeaseLost):
        await it.reconciler.tick()
    assert await it.announced() == []


def noted_starts(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """From where silent ends are read, at each look."""
    plain, starts = store_reconcile.ends_without_event, list[datetime]()

    async def ends_without_event(tx: Transaction, after: Place, **how: Any) -> Page[EndWithoutEvent, Place]:
        starts.append(after[0])
        return await plain(tx, after, **how)

    monkeypatch.setattr(store_reconcile, "ends_without_event", ends_without_event)
    return starts


async def test_a_new_leader_goes_on_where_the_last_one_ended(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = noted_starts(monkeypatch)
    await it.reconcile()
    await it.reconcile(it.a_reconciler())
    day, minutes = timedelta(seconds=DAY), timedelta(minutes=12)
    now: datetime = await it.host.session.fetchval("SELECT clock_timestamp()")
    assert now - day - minutes < starts[0] < now - day + minutes
    assert now - minutes < starts[1] < now
    [late] = await it.silent(age_seconds=300)
    await it.reconcile(it.a_reconciler())
    assert await it.announced() == [late]


@pytest.mark.parametrize("what", ["it was a shadow", "the clock was set back", "it was cut short"])
async def test_a_leader_begins_again_when_the_last_look_does_not_count(
    it: Fixture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "it was cut short":
        it.reconciler._scan.stop.set()
    await it.reconcile(it.a_reconciler(is_shadow=True) if what == "it was a shadow" else None)
    if what == "the clock was set back":
        await it.host.session.execute("UPDATE dlq_handler.progress SET until = until + interval '1 hour'")
    starts = noted_starts(monkeypatch)
    await it.reconcile(it.a_reconciler())
    now: datetime = await it.host.session.fetchval("SELECT clock_timestamp()")
    assert starts[0] < now - timedelta(hours=23)


async def test_an_end_that_was_too_young_at_the_last_look_is_found_at_the_next(it: Fixture) -> None:
    [young] = await it.silent(age_seconds=1800)
    await it.reconcile(it.a_reconciler(missing_event_seconds=3600))
    assert await it.announced() == []
    await it.make_old([young], 3700)
    await it.reconcile(it.a_reconciler(missing_event_seconds=3600))
    assert await it.announced() == [young]


@pytest.mark.parametrize("what", ["asked to stop", "another leads", "gate closes"])
async def test_look_ends_with_its_page_and_the_next_one_goes_on(
    it: Fixture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    first, *_, last = await it.silent(7)
    for one in (first, last):
        await it.slot(one)
    publish = it.reconciler._ends.publish

    async def end_in_the_middle(ends: Sequence[EndWithoutEvent], finding: ReconcileFinding) -> int:
        published = await publish(ends, finding)
        if what == "asked to stop":
            it.reconciler._scan.stop.set()
        elif what == "another leads":
            it.leadership._good_until = 0.0
        else:
            it.gate._set(GateCause.RECOVERY, "a standby")
        return published

    with monkeypatch.context() as patched:
        patched.setattr(it.reconciler._ends, "publish", end_in_the_middle)
        with suppress(GateClosed):
            await it.reconcile()
    assert len(await it.announced()) == 3
    it.reconciler._scan.stop.clear()
    it.gate._set(GateCause.RECOVERY, None)
    await it.reconcile()
    assert len(await it.announced()) == 7


async def test_without_the_broker_missing_events_are_published_all_the_same(it: Fixture) -> None:
    it.queues.unavailable = Unavailable("broker", "away")
    [one] = await it.silent()
    with pytest.raises(Unavailable):
        await it.reconcile()
    assert await it.announced() == [one]


# ------------------------------------------------------------------------------------------------ resurrection


async def failed_by_letter(it: Fixture, worker: int, count: int = 1) -> Sequence[int]:
    ids = await it.host.add_executions(count, worker=worker)
    letters = [await it.host.letter_for(one, worker_id=worker) for one in ids]
    await letter_ender(it.store).commit(letters)
    assert await it.statuses(ids) == {"failed"}
    return ids


async def test_resurrection_by_a_late_worker_is_noticed_once(it: Fixture) -> None:
    worker = await it.a_worker()
    back, done, lost, stays = await failed_by_letter(it, worker, 4)
    await it.run_again(back)
    await it.run_again(done)
    await it.run_again(done, "completed", {"exit_code": 0})
    await it.run_again(lost, "failed", {"error": "exit code 1"})
    await it.reconcile()
    await it.run_again(back, "completed", {"exit_code": 0})
    await it.reconcile()
    found = {row["execution_id"]: row for row in await it.decisions()}
    assert set(found) == {back, done, lost}
    assert {row["outcome"] for row in found.values()} == {"reverted_by_worker"}
    evidence = found[back]["evidence"]
    assert evidence["worker"] == worker
    assert evidence["ended_by"].startswith("letter ")
    assert evidence["heartbeat_age_seconds"] < 60
    assert it.counted("reverted_by_worker") == 3
    assert await count_reverted_by_worker(it.store) == {worker: 3}
    assert await it.status(stays) == "failed"


async def test_look_costs_the_same_however_many_letters_are_kept(
    it: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction, asked = it.store.transaction, 0

    def counted(**how: Any) -> Any:
        nonlocal asked
        asked += 1
        return transaction(**how)

    await it.reconcile()
    monkeypatch.setattr(it.store, "transaction", counted)
    await it.reconcile()
    at_rest, asked = asked, 0
    await it.make_old(await failed_by_letter(it, await it.a_worker(), 30), HOUR)
    asked = 0
    await it.reconcile()
    assert asked == at_rest


async def test_late_worker_is_left_in_peace_while_it_lives_and_abandoned_when_it_dies(it: Fixture) -> None:
    """D8 in full: ended by a letter, reverted, spared by scan and letter, then ended and published again."""
    worker = await it.a_worker(queue=EMPTY)
    [one] = await failed_by_letter(it, worker)
    await it.run_again(one)
    await it.make_old([one])
    replica = it.a_replica()
    it.leadership = replica.leadership
    it.reconciler = it.a_reconciler()
    await it.reconcile()
    for _ in range(3):
        await replica.scan()
        await it.looks_age(60)
    late = await it.host.letter_for(one, key="late", worker_id=worker)
    await letter_ender(it.store).commit([late])
    assert await it.status(one) == "running"

    await it.host.session.execute(
        "UPDATE worker SET last_heartbeat = now() - interval '1 hour' WHERE id = $1", worker
    )
    await replica.scan()
    await it.looks_age(60)
    await replica.scan()
    assert await it.status(one) == "abandoned"
    assert await it.outcomes() == [(one, "reverted_by_worker"), (one, "abandoned")]
    first, second = [row["message_id"] for row in await it.host.outbox()]
    assert first != second
    await it.reconcile()
    assert await it.outcomes() == [(one, "reverted_by_worker"), (one, "abandoned")], "as we left it"


# ------------------------------------------------------------------------------------------------ with real servers


@pytest.fixture
async def stock(vhost: str, database: str) -> AsyncIterator[tuple[StockExecutor, CompletionListener]]:
    async with (
        StockExecutor(vhost, database) as executor,
        CompletionListener(vhost, database) as listener,
    ):
        yield executor, listener


@pytest.mark.usefixtures("admission_works")
async def test_line_behind_a_silent_end_moves_on(
    it: Fixture, stock: tuple[StockExecutor, CompletionListener], vhost: str, database: str
) -> None:
    """The stock handler fails an execution that holds the one slot of its action, and publishes nothing (D2)."""
    executor, listener = stock
    await executor.ensure_action("core.echo", concurrency_limit=1)
    first, second = await executor.create_execution(), await executor.create_execution()
    assert await executor.admit(first)
    assert not await executor.admit(second)
    worker = await it.host.add_worker(heartbeat_age_seconds=HOUR)
    dispatch = await executor.schedule(first, worker)
    async with StockDeadLetterHandler(vhost, database) as handler:
        await put_into(vhost, DLX_QUEUE, dispatch.message.body)
        await eventually(lambda: handler.failed)
    await it.make_old([first], 120)

    async with AdminConnection(BrokerAddress(urls=[vhost])) as link:
        it.queues.counts = await count_queue(link, COMPLETED_QUEUE)
    await it.reconcile()
    await publish_outbox(it.store, vhost)
    await eventually(lambda: listener.promoted == [second])


async def put_into(vhost: str, queue: str, body: bytes) -> None:
    connection = await aio_pika.connect(vhost)
    async with connection:
        channel = await connection.channel()
        await channel.default_exchange.publish(aio_pika.Message(body), routing_key=queue)
