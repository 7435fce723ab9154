"""Intervals without a consumer are recorded; ends that Attune's own monitor wrote in them are published once."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership, LeaseLost
from dlq_handler.endings.options import RecordOptions
from dlq_handler.endings.writers import EventWriter, ShadowWriter
from dlq_handler.errors import GateClosed, Unavailable
from dlq_handler.explain.records_sql import records_of
from dlq_handler.history.options import RetentionPolicy
from dlq_handler.history.retention import RetentionRunner
from dlq_handler.host import unpublished_sql
from dlq_handler.host.ends import UnconsumedInterval
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.rooms import RETENTION_STEPS, new_metrics
from dlq_handler.safety.gate import GateCause
from dlq_handler.timeouts import completion_watch
from dlq_handler.timeouts.completion_watch import CompletionWatch
from dlq_handler.timeouts.findings import ReconcileFinding
from dlq_handler.timeouts.leader_scan import CHECK_SECONDS, LeaderScan
from dlq_handler.timeouts.message_recorders import EndPublisher
from dlq_handler.timeouts.options import MonitorOptions
from tests.support.builders import COMPLETIONS
from tests.support.fail_safe import a_gate
from tests.support.host_tables import Host
from tests.support.stale_world import HOUR, SetQueue, StaleWorld

GONE = QueueCounts(ready=0, consumers=0)
IDLE = QueueCounts(ready=0, consumers=1)
BY_MONITOR = {"error": "…", "failed_by": "execution_timeout_monitor", "original_status": "scheduled"}
ABANDONED = {"error": "…", "abandoned_by": "execution_timeout_monitor", "original_status": "running"}


class SetApi(ManagementApi):
    unacked: int | None = 0

    def __init__(self) -> None:
        pass

    async def unacknowledged(self, queue: str) -> int | None:  # the test has one queue
        if self.unacked is None:
            raise Unavailable("management API", "away")
        return self.unacked


class Fixture(StaleWorld):
    """A watch whose minutes pass when the test says so. The database's clock is the real one."""

    def __init__(self, store: Database, host: Host) -> None:
        super().__init__(store, host)
        self.seconds = 0.0
        self.metrics = new_metrics()
        self.queues, self.api = SetQueue(GONE), SetApi()
        self.leadership = self.a_leadership("one")
        self.gate = a_gate(store)
        self.watch = self.a_watch()

    def a_leadership(self, holder: str, name: str = "leader") -> Leadership:
        return Leadership(self.store, name, lease_seconds=300, holder=holder, metrics=new_metrics())

    def a_watch(self, *, leadership: Leadership | None = None, is_shadow: bool = False) -> CompletionWatch:
        leadership = leadership or self.leadership
        return CompletionWatch(
            LeaderScan(self.store, leadership, self.gate),
            MonitorOptions(batch_size=3),
            self.a_publisher(leadership, is_shadow=is_shadow),
            self.queues,
            self.api,
            now=lambda: self.seconds,
        )

    def a_publisher(self, leadership: Leadership, *, is_shadow: bool = False) -> EndPublisher:
        return EndPublisher(
            self.store,
            ShadowWriter(self.gate) if is_shadow else EventWriter(),
            leadership,
            RecordOptions(replica="one", destination=COMPLETIONS, is_shadow=is_shadow),
            self.metrics,
            batch_size=3,
        )

    async def pass_looks(self, looks: int = 1, watch: CompletionWatch | None = None) -> None:
        await self.leadership.tick()
        for _ in range(looks):
            await (watch or self.watch).tick()
            self.seconds += CHECK_SECONDS

    async def come_back(self, seconds: float = 120, watch: CompletionWatch | None = None) -> None:
        """The executor is restarted, and its consumers have nothing to do for so long."""
        self.queues.counts = IDLE
        await self.pass_looks(int(seconds / CHECK_SECONDS) + 1, watch)

    async def ended(self, count: int = 1, **columns: Any) -> list[int]:
        """Just now, by Attune's own monitor, as it fails what stayed scheduled."""
        if "worker" not in columns:
            columns["worker"] = await self.a_worker()
        return await self.host.add_executions(count, **({"status": "failed", "result": BY_MONITOR} | columns))

    async def ended_meanwhile(self, count: int = 1, **columns: Any) -> list[int]:
        """Between two looks that find no consumer."""
        await self.pass_looks()
        ids = await self.ended(count, **columns)
        await self.pass_looks()
        return ids

    async def a_task(self, *, graph: object = None, parent_status: str = "running", **task: Any) -> int:
        parent = await self.host.add_execution(status=parent_status)
        workflow = await self.host.session.fetchval(
            "INSERT INTO workflow_execution (execution, current_tasks, task_graph)"
            " VALUES ($1, '{build}', $2) RETURNING id",
            parent,
            graph or {},
        )
        metadata = {"workflow_execution": workflow, "task_name": "build", "retry_count": 0, **task}
        [one] = await self.ended(parent=parent, workflow_task=metadata)
        return one

    async def a_task_meanwhile(self, **how: Any) -> int:
        await self.pass_looks()
        one = await self.a_task(**how)
        await self.pass_looks()
        return one

    async def hold_slot(self, execution_id: int) -> None:
        session = self.host.session
        await session.execute(
            "INSERT INTO pack (ref, label, version) VALUES ('core', 'core', '1.0.0');"
            "INSERT INTO action (ref, pack, pack_ref, label, entrypoint)"
            " SELECT 'core.echo', id, ref, ref, ref FROM pack;"
            "INSERT INTO execution_admission_state (action_id, max_concurrent) SELECT id, 1 FROM action"
        )
        await session.execute(
            "INSERT INTO execution_admission_entry (state_id, execution_id, status, queue_order, activated_at)"
            " SELECT id, $1, 'active', 1, now() - interval '1 hour' FROM execution_admission_state",
            execution_id,
        )

    async def published(self) -> list[int]:
        return sorted(row["execution_id"] for row in await self.host.outbox())

    async def intervals(self) -> list[Any]:
        return await self.host.session.fetch("SELECT * FROM dlq_handler.unconsumed_interval ORDER BY id")

    async def intervals_age(self, seconds: float) -> None:
        await self.host.session.execute(
            "UPDATE dlq_handler.unconsumed_interval SET began_at = began_at - make_interval(secs => $1),"
            " last_observed_at = last_observed_at - make_interval(secs => $1)",
            seconds,
        )

    def counted(self, finding: str) -> float | None:
        return self.metrics.registry.get_sample_value("dlq_handler_reconciled_total", {"finding": finding})


@pytest.fixture
async def it(store: Database, host: Host) -> Fixture:
    return Fixture(store, host)


# ------------------------------------------------------------------------------------------------ intervals


async def test_interval_reaches_from_the_first_to_the_last_look_without_a_consumer(it: Fixture) -> None:
    before = await it.host.session.fetchval("SELECT clock_timestamp()")
    await it.pass_looks(3)
    [one] = await it.intervals()
    after = await it.host.session.fetchval("SELECT clock_timestamp()")
    assert before < one["began_at"] < one["last_observed_at"] < after
    assert one["is_open"]
    it.queues.counts = IDLE
    await it.pass_looks(2)
    [closed] = await it.intervals()
    assert (closed["last_observed_at"], closed["is_open"]) == (one["last_observed_at"], False)


@pytest.mark.parametrize("what", ["a consumer came and went", "the leader was away for a minute"])
async def test_interval_does_not_reach_over_what_was_seen_otherwise_or_not_at_all(
    it: Fixture, what: str
) -> None:
    await it.pass_looks(2)
    if what == "a consumer came and went":
        it.queues.counts = IDLE
        await it.pass_looks()
        it.queues.counts = GONE
    else:
        await it.intervals_age(60)
    [lost] = await it.ended()
    await it.pass_looks(2)
    first, second = await it.intervals()
    assert first["last_observed_at"] < second["began_at"]
    await it.come_back()
    assert await it.published() == [], f"execution {lost} ended at a time that was not observed"


async def test_another_leader_extends_the_interval_of_the_last_one(it: Fixture) -> None:
    await it.pass_looks()
    lost = await it.ended()
    await it.pass_looks(1, it.a_watch())
    assert len(await it.intervals()) == 1
    await it.come_back()
    assert await it.published() == lost


async def test_consumer_that_came_back_under_another_leader_closes_the_interval(it: Fixture) -> None:
    await it.pass_looks(2)
    it.queues.counts = IDLE
    await it.pass_looks(1, it.a_watch())
    assert [one["is_open"] for one in await it.intervals()] == [False]


@pytest.mark.parametrize("what", ["unknown", "away", "consumed"])
async def test_only_a_look_that_finds_no_consumer_is_recorded(it: Fixture, what: str) -> None:
    if what == "away":
        it.queues.unavailable = Unavailable("broker", "away")
        with pytest.raises(Unavailable):
            await it.pass_looks()
    else:
        it.queues.counts = None if what == "unknown" else IDLE
        await it.pass_looks(3)
    assert await it.intervals() == []


async def test_only_the_leader_records_and_publishes(it: Fixture) -> None:
    await it.a_leadership("other").tick()
    await it.pass_looks(2)
    assert await it.intervals() == []
    it.leadership._good_until = float("inf")
    with pytest.raises(LeaseLost):
        await it.watch.tick()
    assert await it.intervals() == []


async def test_old_intervals_are_deleted(it: Fixture) -> None:
    await it.pass_looks(2)
    await it.intervals_age(HOUR)
    it.queues.counts = IDLE
    await it.pass_looks()
    it.queues.counts = GONE
    await it.pass_looks(2)
    policy = RetentionPolicy(resolved_seconds=600, unresolved_seconds=86_400, interval_seconds=60)
    await RetentionRunner(it.store, policy, RETENTION_STEPS).tick()
    [left] = await it.intervals()
    assert left["is_open"]


# ------------------------------------------------------------------------------------------------ ends


async def test_ends_without_an_event_are_published_once_when_consumers_are_back(it: Fixture) -> None:
    await it.pass_looks()
    failed = await it.ended(7)
    [abandoned] = await it.ended(status="abandoned", result=ABANDONED)
    await it.pass_looks()
    await it.come_back(50)
    assert await it.published() == [], "the queue was empty for less than a minute"
    await it.come_back(20)
    assert await it.published() == [*failed, abandoned]
    [event] = [row for row in await it.host.outbox() if row["execution_id"] == abandoned]
    payload = json.loads(event["body"])["payload"]
    assert (payload["status"], payload["result"]) == ("Abandoned", ABANDONED)
    assert it.counted("unpublished_end") == 8
    [record] = [row for row in await it.decisions() if row["execution_id"] == abandoned]
    assert record["outcome"] == "completion_published"
    assert set(record["evidence"]) == {"finding", "no_consumer_from", "no_consumer_until"}

    await it.come_back(600)
    await it.come_back(600, it.a_watch())
    await it.host.session.execute("DELETE FROM dlq_handler.progress")
    await it.come_back(120, it.a_watch())
    assert len(await it.host.outbox()) == 8


@pytest.mark.parametrize("dies", ["before the progress is kept", "between two pages"])
async def test_leader_that_dies_in_a_scan_leaves_no_end_out_and_repeats_none(
    it: Fixture, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    ids = await it.ended_meanwhile(7)

    class Died(Exception):
        pass

    async def die(*_: object, **__: object) -> None:
        raise Died

    publish, pages = it.watch._ends.publish, list[object]()

    async def die_after_a_page(ends: Sequence[Any], finding: ReconcileFinding) -> int:
        if len(pages) == 2:
            raise Died
        pages.append(ends)
        return await publish(ends, finding)

    with monkeypatch.context() as patched:
        if dies == "between two pages":
            patched.setattr(it.watch._ends, "publish", die_after_a_page)
        else:
            patched.setattr(completion_watch, "keep_progress", die)
        with pytest.raises(Died):
            await it.come_back()
    assert len(await it.published()) == (7 if dies == "before the progress is kept" else 3)
    await it.come_back(120, it.a_watch())
    assert await it.published() == ids


async def test_ends_that_are_given_twice_are_published_once(it: Fixture) -> None:
    """As by a leader that found a page, lost the answer to its commit, and continues with the same page."""
    ids = await it.ended_meanwhile(2)
    [row] = await it.intervals()
    interval = UnconsumedInterval(began_at=row["began_at"], last_observed_at=row["last_observed_at"])
    async with it.store.transaction() as tx:
        page = await unpublished_sql.ends_within(
            tx,
            (interval.began_at, 0),
            interval=interval,
            status=ExecutionStatus.FAILED,
            limit=3,
            is_shadow=False,
        )
    ends, publisher = [one.end for one in page.found], it.a_publisher(it.leadership)
    assert await publisher.publish(ends, ReconcileFinding.UNPUBLISHED_END) == 2
    assert await publisher.publish(ends, ReconcileFinding.UNPUBLISHED_END) == 0
    assert await it.published() == ids
    assert it.counted("unpublished_end") == 2


@pytest.mark.parametrize(
    "queue",
    [None, QueueCounts(ready=1, consumers=1), QueueCounts(ready=0, consumers=0)],
    ids=["unknown", "not empty", "without a consumer"],
)
async def test_nothing_is_published_unless_the_consumers_are_idle(
    it: Fixture, queue: QueueCounts | None
) -> None:
    ids = await it.ended_meanwhile()
    it.queues.counts = queue
    await it.pass_looks(20)
    assert await it.published() == []
    await it.come_back()
    assert await it.published() == ids


async def test_ends_of_others_and_of_other_times_are_left_alone(it: Fixture) -> None:
    it.queues.counts = IDLE
    await it.pass_looks()
    await it.ended()
    it.queues.counts = GONE
    await it.pass_looks()
    await it.ended(result={"error": "exit code 1"})
    await it.ended(result=BY_MONITOR | {"failed_by": "dlq_handler"})
    await it.ended(result=["execution_timeout_monitor"])
    await it.ended(status="completed")
    await it.ended(status="running", result=None)
    await it.pass_looks()
    await it.ended()
    await it.come_back()
    assert await it.published() == []


async def test_worker_deleted_meanwhile_brings_back_no_end_of_months_ago(it: Fixture) -> None:
    worker = await it.a_worker()
    old = await it.ended(worker=worker)
    await it.make_old(old, 90 * 86_400)
    await it.pass_looks()
    before = (await it.host.execution(old[0]))["updated"]
    await it.host.session.execute("DELETE FROM worker WHERE id = $1", worker)
    assert (await it.host.execution(old[0]))["updated"] > before
    await it.pass_looks()
    await it.come_back()
    assert await it.published() == []


async def test_nothing_is_published_while_the_gate_is_closed(it: Fixture) -> None:
    ids = await it.ended_meanwhile()
    it.gate._set(GateCause.RECOVERY, "a standby")
    with pytest.raises(GateClosed):
        await it.come_back()
    assert await it.published() == []
    it.gate._set(GateCause.RECOVERY, None)
    await it.come_back()
    assert await it.published() == ids


async def test_shadow_records_what_it_would_have_published(it: Fixture) -> None:
    [one] = await it.ended_meanwhile()
    leadership = it.a_leadership("two", name="shadow leader")
    await leadership.tick()
    shadow = it.a_watch(leadership=leadership, is_shadow=True)
    await it.come_back(300, shadow)
    assert await it.published() == []
    [record] = await it.decisions()
    assert (record["execution_id"], record["is_shadow"]) == (one, True)
    await it.come_back()
    assert await it.published() == [one], (
        "a replica that is not in shadow mode does not go on where the shadow ended"
    )


# ------------------------------------------------------------------------------------------------ workflow tasks


@pytest.mark.parametrize(
    "what", ["its workflow has ended", "it was retried", "its workflow went on", "its parent was deleted"]
)
async def test_task_whose_end_the_host_knows_is_left_alone(it: Fixture, what: str) -> None:
    one = await it.a_task_meanwhile(max_retries=2)
    change = {
        "its workflow has ended": "UPDATE execution SET status = 'failed' WHERE status = 'running'",
        "it was retried": f"INSERT INTO execution (action_ref, original_execution) VALUES ('core.echo', {one})",
        "its workflow went on": "UPDATE workflow_execution SET failed_tasks = '{build}'",
        "its parent was deleted": f"UPDATE execution SET parent = NULL WHERE id = {one}",
    }[what]
    # Without the triggers: the row of the task must not leave the interval.
    await it.host.session.execute(
        f"SET session_replication_role = replica; {change}; SET session_replication_role = DEFAULT"
    )
    await it.come_back(600)
    assert await it.published() == []


async def test_other_items_of_a_task_are_published_although_one_has_failed(it: Fixture) -> None:
    """The workflow lists the name of the task, not its items."""
    one = await it.a_task_meanwhile(task_index=3)
    await it.host.session.execute("UPDATE workflow_execution SET failed_tasks = '{build}'")
    await it.come_back()
    assert await it.published() == [one]


async def test_task_waits_for_the_delay_of_its_retry(it: Fixture) -> None:
    """Attune holds the message during that time, and then writes the retry."""
    graph = {"nodes": {"build": {"retry": {"count": 2, "delay": 120, "backoff": "Constant"}}}}
    one = await it.a_task_meanwhile(max_retries=2, graph=graph)
    [plain] = await it.ended_meanwhile()
    await it.come_back(170)
    assert await it.published() == [plain]
    await it.come_back(120)
    assert await it.published() == [one, plain]


async def test_task_waits_while_the_consumers_hold_messages(it: Fixture) -> None:
    one = await it.a_task_meanwhile(max_retries=2)
    [plain] = await it.ended_meanwhile()
    it.api.unacked = 3
    await it.come_back()
    assert await it.published() == [plain]
    it.api.unacked = None
    await it.come_back(60)
    assert await it.published() == [one, plain], "without the management API only the time counts"


async def test_tasks_wait_while_workflows_cannot_be_read(it: Fixture) -> None:
    await it.a_task_meanwhile(max_retries=2)
    last = await it.a_task_meanwhile(max_retries=0)
    [plain] = await it.ended_meanwhile()
    await it.host.session.execute("DROP TABLE workflow_execution CASCADE")
    await it.come_back(600)
    assert await it.published() == [plain]
    unpublished = (await records_of(it.store, last)).unpublished
    assert unpublished is not None
    assert unpublished.task is not None
    assert not unpublished.task.is_workflow_readable


# ------------------------------------------------------------------------------------------------ slots


async def test_of_ends_at_unobserved_times_tasks_that_hold_a_slot_are_published_once(it: Fixture) -> None:
    task, free = await it.a_task(max_retries=1), await it.a_task(max_retries=1)
    await it.make_old([task, free])
    await it.hold_slot(task)
    await it.come_back()
    assert await it.published() == [task]
    assert it.counted("held_slot") == 1
    await it.host.session.execute("UPDATE dlq_handler.outbox SET confirmed_at = now()")
    await it.come_back(1200)
    assert await it.published() == [task]


@pytest.mark.parametrize("what", ["just ended", "completed by its worker", "retried", "no task"])
async def test_slots_of_other_ends_are_left_to_the_reconciler_or_the_host(it: Fixture, what: str) -> None:
    one = await it.a_task(max_retries=1)
    if what == "no task":
        [one] = await it.ended()
    if what == "completed by its worker":
        await it.host.session.execute(
            "UPDATE execution SET status = 'completed', result = '{}' WHERE id = $1", one
        )
    if what == "retried":
        await it.host.add_execution(status="requested", original_execution=one)
    if what != "just ended":
        await it.make_old([one])
    await it.hold_slot(one)
    await it.come_back()
    assert await it.published() == []


async def test_host_without_admission_tables_has_no_slots(it: Fixture) -> None:
    await it.host.session.execute("DROP TABLE execution_admission_entry, execution_admission_state")
    ids = await it.ended_meanwhile()
    await it.come_back()
    assert await it.published() == ids
    assert (await records_of(it.store, ids[0])).unpublished is None
