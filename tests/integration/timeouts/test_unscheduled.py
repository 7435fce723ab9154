"""Lost requests are repeated to a real scheduler; executions that wait for a reason are left alone."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_queue
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.options import RecordOptions
from dlq_handler.endings.recording import Recorder
from dlq_handler.endings.writers import EventWriter, LiveWriter, ShadowWriter, Writer
from dlq_handler.errors import Unavailable
from dlq_handler.host import unscheduled_sql
from dlq_handler.host.unscheduled_sql import count_overdue
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.gate_service import Gate
from dlq_handler.timeouts.decision import StaleRecord
from dlq_handler.timeouts.leader_scan import CHECK_SECONDS, LeaderScan, QuietTime
from dlq_handler.timeouts.message_recorders import RequestRecorder
from dlq_handler.timeouts.options import MonitorOptions
from dlq_handler.timeouts.recorder import UnscheduledEndRecorder
from dlq_handler.timeouts.unscheduled import UnscheduledWatch
from sandbox.attune.executor import StockExecutor
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.topology import REQUESTS_QUEUE
from sandbox.attune.worker import StockWorker
from tests.support.builders import COMPLETIONS
from tests.support.eventually import eventually
from tests.support.fail_safe import a_brake, a_gate
from tests.support.host_tables import Host
from tests.support.stale_world import HOUR, SetQueue, StaleWorld, publish_outbox

TIMEOUT = 900.0
QUIET_SECONDS = 60.0
QUIET = QueueCounts(ready=0, consumers=1)


class Fixture(StaleWorld):
    """A watch whose minutes pass when the test says so, on a scheduler's queue that the test can describe."""

    def __init__(self, store: Database, host: Host) -> None:
        super().__init__(store, host)
        self.seconds = 0.0
        self.metrics = new_metrics()
        self.queue = SetQueue(QUIET)
        self.leadership = Leadership(store, "leader", lease_seconds=300, holder="one", metrics=new_metrics())
        self.watch = self.a_watch()

    def a_watch(
        self,
        *,
        may_fail: bool = False,
        limit: int = 0,
        republish_limit: int = 20,
        republishes: bool = True,
        gate: Gate | None = None,
        is_shadow: bool = False,
        **options: Any,
    ) -> UnscheduledWatch:
        fields: dict[str, Any] = {
            "unscheduled_timeout_seconds": TIMEOUT,
            "quiet_seconds": QUIET_SECONDS,
            "interval_seconds": 60,
            "batch_size": 3,
            "fail_unscheduled": may_fail,
            "republish_limit": republish_limit,
            "republish_requests": republishes,
        }
        gate = gate or a_gate(self.store)
        record = RecordOptions(replica="one", destination=COMPLETIONS, is_shadow=is_shadow)
        writer = (
            ShadowWriter(gate)
            if is_shadow
            else LiveWriter(gate, a_brake(self.store, limit=limit), relay=None)
        )
        return UnscheduledWatch(
            LeaderScan(self.store, self.leadership, gate),
            MonitorOptions(**(fields | options)),
            self.queue,
            ends=self._ender(writer, UnscheduledEndRecorder(record, self.metrics)),
            requests=self._ender(
                writer if is_shadow else EventWriter(), RequestRecorder(record, self.metrics)
            ),
            is_shadow=is_shadow,
            now=lambda: self.seconds,
        )

    def _ender(self, writer: Writer, recorder: Recorder[Any, StaleRecord]) -> Ender[Any, StaleRecord]:
        return Ender(self.store, writer, recorder, 3, leadership=self.leadership)

    async def pass_minutes(self, minutes: float = 2, watch: UnscheduledWatch | None = None) -> None:
        await self.leadership.tick()
        for _ in range(int(minutes * 60 / CHECK_SECONDS)):
            await (watch or self.watch).tick()
            self.seconds += CHECK_SECONDS

    async def requests(self) -> list[int]:
        rows = await self.host.outbox()
        return [row["execution_id"] for row in rows if row["routing_key"] == "execution.requested"]

    async def confirm_requests(self) -> None:
        await self.host.session.execute("UPDATE dlq_handler.outbox SET confirmed_at = now()")

    async def announcements_age(self, seconds: float, *, confirmed: bool = True) -> None:
        if confirmed:
            await self.confirm_requests()
        await self.host.session.execute(
            "UPDATE dlq_handler.repeated_request SET last_at = last_at - make_interval(secs => $1)",
            seconds,
        )

    async def outcomes(self) -> list[tuple[int, str]]:
        return [(row["execution_id"], row["outcome"]) for row in await self.decisions()]


@pytest.fixture
async def it(store: Database, host: Host) -> Fixture:
    return Fixture(store, host)


@pytest.mark.parametrize("status", ["requested", "scheduling"])
async def test_request_that_is_overdue_is_repeated_once(it: Fixture, status: str) -> None:
    ids = await it.stale_ones(7, status=status)
    await it.pass_minutes(5)
    assert sorted(await it.requests()) == ids
    assert await it.outcomes() == [(one, "request_republished") for one in ids]
    assert await it.statuses(ids) == {status}
    assert (
        it.metrics.registry.get_sample_value("dlq_handler_reconciled_total", {"finding": "lost_request"}) == 7
    )


async def test_scheduler_that_comes_back_is_asked_a_page_at_a_time(it: Fixture) -> None:
    """It was away for hours, and all that was requested meanwhile is overdue: asked at once it would be buried."""
    ids = [*await it.stale_ones(7, status="requested"), *await it.stale_ones(7, status="scheduling")]
    asked = []
    for _ in range(7):
        await it.pass_minutes(QUIET_SECONDS / 60 + 10 / 60)
        asked.append(len(await it.requests()))
    assert asked == [3, 6, 7, 10, 13, 14, 14]
    assert sorted(await it.requests()) == ids


@pytest.mark.parametrize("what", ["asked to stop", "another leads"])
async def test_scan_ends_with_its_page(it: Fixture, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    parents = await it.stale_ones(3, status="requested", age_seconds=2 * HOUR)
    for parent in parents:
        await it.host.add_execution(status="running", parent=parent)
    await it.a_stale_one(status="requested")
    act = it.watch._act

    async def end_in_the_middle(*page: Any) -> int:
        if what == "asked to stop":
            it.watch._scan.stop.set()
        else:
            it.leadership._good_until = 0.0
        return await act(*page)

    monkeypatch.setattr(it.watch, "_act", end_in_the_middle)
    await it.pass_minutes(1.5)
    assert await it.requests() == []


async def test_scans_keep_their_interval_although_looks_are_many(it: Fixture) -> None:
    watch = it.a_watch(interval_seconds=600)
    await it.pass_minutes(2, watch)
    one = await it.a_stale_one(status="requested")
    await it.pass_minutes(5, watch)
    assert await it.requests() == []
    await it.pass_minutes(5, watch)
    assert await it.requests() == [one]


async def test_request_is_what_its_creator_published(it: Fixture) -> None:
    parent = await it.host.add_execution(status="running")
    one = await it.a_stale_one(status="requested", parent=parent, config={"message": "hi", "n": 1})
    await it.pass_minutes()
    [entry] = [row for row in await it.host.outbox() if row["execution_id"] == one]
    envelope = json.loads(entry["body"])
    assert envelope["message_type"] == "ExecutionRequested"
    assert envelope["message_id"] == str(entry["message_id"])
    assert envelope["payload"] == {
        "execution_id": one,
        "action_id": None,
        "action_ref": "core.echo",
        "parent_id": parent,
        "enforcement_id": None,
        "config": {"message": "hi", "n": 1},
    }
    assert entry["exchange"] == "attune.executions"
    assert not entry["is_workflow_task"]


async def test_config_of_megabytes_stays_in_the_row(it: Fixture) -> None:
    one = await it.a_stale_one(status="requested")
    await it.host.session.execute(
        "SET session_replication_role = replica;"
        "UPDATE execution SET config = jsonb_build_object('text',"
        f" (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 40000) n)) WHERE id = {one};"
        "SET session_replication_role = DEFAULT"
    )
    await it.pass_minutes()
    [entry] = await it.host.outbox()
    assert json.loads(entry["body"])["payload"]["config"] is None


async def test_executions_that_wait_for_a_reason_are_left_alone(it: Fixture) -> None:
    session = it.host.session
    await session.execute(
        "INSERT INTO pack (ref, label, version) VALUES ('core', 'core', '1.0.0');"
        "INSERT INTO action (ref, pack, pack_ref, label, entrypoint) SELECT 'core.echo', id, ref, ref, ref FROM pack;"
        "INSERT INTO execution_admission_state (action_id, max_concurrent) SELECT id, 1 FROM action"
    )
    in_line, in_slot = await it.stale_ones(2, status="requested")
    for one, status in ((in_line, "queued"), (in_slot, "active")):
        await session.execute(
            "INSERT INTO execution_admission_entry (state_id, execution_id, status, queue_order)"
            " SELECT id, $1, $2, $1 FROM execution_admission_state",
            one,
            status,
        )
    task = {"task_name": "build", "next_retry_at": "2999-01-01T00:00:00Z"}
    await it.stale_ones(1, status="requested", workflow_task=task)
    await it.stale_ones(1, status="requested", age_seconds=TIMEOUT - 60)
    parent = await it.a_stale_one(status="scheduling")
    await it.host.add_execution(status="running", parent=parent)
    await it.pass_minutes(5)
    assert await it.requests() == [in_slot], "a promoted one whose request was lost has its slot already"
    assert await count_overdue(it.store, older_than_seconds=TIMEOUT) == 1


@pytest.mark.parametrize("by", ["started", "action", "children"])
async def test_parent_of_a_workflow_is_never_requested_again(it: Fixture, by: str) -> None:
    """Attune writes no execution.workflow_def: a parent is known by its action, its children, or its start."""
    session = it.host.session
    parent, plain = await it.stale_ones(2, status="requested")
    match by:
        case "started":
            await session.execute("INSERT INTO workflow_execution (execution) VALUES ($1)", parent)
        case "action":
            await session.execute(
                "INSERT INTO pack (ref, label, version) VALUES ('core', 'core', '1.0.0');"
                "INSERT INTO workflow_definition (ref, pack, pack_ref, label, version)"
                " SELECT 'core.flow', id, ref, ref, '1.0.0' FROM pack;"
                "INSERT INTO action (ref, pack, pack_ref, label, entrypoint, workflow_def)"
                " SELECT 'core.flow', pack, pack_ref, ref, ref, id FROM workflow_definition;"
                "SET session_replication_role = replica;"
                f"UPDATE execution SET action = (SELECT id FROM action) WHERE id = {parent};"
                "SET session_replication_role = DEFAULT"
            )
        case _:
            await it.host.add_execution(status="running", parent=parent)
    await it.pass_minutes(5)
    assert await it.requests() == [plain]


async def test_host_without_workflow_tables_has_no_parents_to_spare(it: Fixture) -> None:
    await it.host.session.execute(
        "DROP TABLE workflow_task_dispatch, workflow_execution; ALTER TABLE action DROP COLUMN workflow_def"
    )
    one = await it.a_stale_one(status="requested")
    await it.pass_minutes()
    assert await it.requests() == [one]


@pytest.mark.parametrize(
    "queue",
    [
        None,
        QueueCounts(ready=1, consumers=1),
        QueueCounts(ready=0, consumers=0),
    ],
    ids=["missing", "not empty", "without a consumer"],
)
async def test_nothing_is_repeated_unless_the_scheduler_is_seen_idle(
    it: Fixture, queue: QueueCounts | None
) -> None:
    await it.a_stale_one(status="requested")
    it.queue.counts = queue
    await it.pass_minutes()
    assert await it.requests() == []
    it.queue.counts = QUIET
    await it.pass_minutes(1)
    assert await it.requests() == [], "a minute of quiet looks comes first"
    await it.pass_minutes(1)
    assert len(await it.requests()) == 1


def test_one_busy_look_or_a_gap_between_two_ends_the_quiet() -> None:
    quiet, busy = QuietTime(CHECK_SECONDS), QueueCounts(ready=1, consumers=1)
    looks = [(QUIET, second) for second in range(0, 70, 10)]
    looks += [(busy, 70), (QUIET, 80), (QUIET, 90), (QUIET, 90 + 4 * int(CHECK_SECONDS))]
    seen = []
    for counts, second in looks:
        quiet.note(counts, second)
        seen.append(quiet.seconds)
    assert seen == [0, 10, 20, 30, 40, 50, QUIET_SECONDS, None, 0, 10, 0]


async def test_replica_that_does_not_lead_does_nothing(it: Fixture) -> None:
    await it.a_stale_one(status="requested")
    other = Leadership(it.store, "leader", lease_seconds=300, holder="other", metrics=new_metrics())
    await other.tick()
    await it.pass_minutes()
    assert await it.requests() == []


async def test_shadow_records_what_it_would_have_done(it: Fixture) -> None:
    one = await it.a_stale_one(status="requested")
    await it.pass_minutes(3, it.a_watch(is_shadow=True))
    assert await it.requests() == []
    [decision] = await it.decisions()
    assert (decision["execution_id"], decision["outcome"], decision["is_shadow"]) == (
        one,
        "request_republished",
        True,
    )


async def test_with_republishing_off_nothing_is_requested_and_overdue_executions_are_counted(
    it: Fixture, store: Database
) -> None:
    """A POST that was answered with an error leaves such a row."""
    await it.stale_ones(2, status="requested")
    off = it.a_watch(republishes=False)
    await it.pass_minutes(3, off)
    assert await it.requests() == []
    assert await it.outcomes() == []
    assert await count_overdue(store, older_than_seconds=TIMEOUT) == 2

    await it.pass_minutes(3)
    assert len(await it.requests()) == 2


async def test_only_where_wanted_it_is_failed_after_another_timeout(it: Fixture) -> None:
    one = await it.a_stale_one(status="requested", workflow_task={"task_name": "build"})
    watch = it.a_watch(may_fail=True)
    await it.pass_minutes(2, watch)
    assert await it.status(one) == "requested"
    await it.announcements_age(TIMEOUT)
    await it.pass_minutes(2, it.a_watch(republish_limit=1))
    assert await it.status(one) == "requested", "it is off by default"
    await it.pass_minutes(2, watch)
    row = await it.host.execution(one)
    assert row["status"] == "failed"
    assert row["result"]["failed_by"] == "dlq_handler"
    assert row["result"]["original_status"] == "requested"
    assert row["result"]["timeout_seconds"] == TIMEOUT
    assert await it.outcomes() == [(one, "request_republished"), (one, "failed")]
    [_, completion] = await it.host.outbox()
    assert completion["routing_key"] == "execution.completed"
    assert completion["is_workflow_task"]


async def test_brake_holds_ends_and_row_that_moved_is_not_failed(it: Fixture) -> None:
    ids = await it.stale_ones(3, status="requested")
    watch = it.a_watch(may_fail=True, limit=1)
    await it.pass_minutes(2, watch)
    await it.announcements_age(TIMEOUT)
    with pytest.raises(Unavailable, match="brake"):
        await it.pass_minutes(2, watch)
    statuses = sorted([await it.status(one) for one in ids])
    assert statuses == ["failed", "requested", "requested"]


async def test_locked_row_is_left_to_the_next_scan(it: Fixture) -> None:
    held, other = await it.stale_ones(2, status="requested")
    watch = it.a_watch(may_fail=True)
    await it.pass_minutes(2, watch)
    await it.announcements_age(TIMEOUT)
    async with it.host.holding(held):
        await it.pass_minutes(2, watch)
        assert await it.status(other) == "failed"
    await it.pass_minutes(2, watch)
    assert await it.status(held) == "failed"


async def test_row_that_the_database_refuses_keeps_no_other_one_waiting(it: Fixture) -> None:
    """A workflow task that is too long for the host's NOTIFY cannot change its status at all."""
    bad, good = await it.stale_ones(2, status="requested")
    await it.host.session.execute(
        "SET session_replication_role = replica;"
        f"UPDATE execution SET workflow_task = jsonb_build_object('task_name', repeat('x', 9000)) WHERE id = {bad};"
        "SET session_replication_role = DEFAULT"
    )
    watch = it.a_watch(may_fail=True)
    await it.pass_minutes(2, watch)
    await it.announcements_age(TIMEOUT)
    await it.pass_minutes(5, watch)
    assert await it.status(good) == "failed"
    assert await it.status(bad) == "requested"
    [refused] = [row for row in await it.decisions() if row["outcome"] == "update_failed"]
    assert refused["execution_id"] == bad
    assert refused["attempts"] == 1, "not before it is due again"


@pytest.fixture
async def stock(vhost: str, database: str) -> AsyncIterator[tuple[StockExecutor, Scheduler, StockWorker]]:
    async with (
        StockExecutor(vhost, database) as executor,
        Scheduler(vhost, database) as scheduler,
        StockWorker(vhost, database) as worker,
    ):
        yield executor, scheduler, worker


async def test_stock_scheduler_takes_up_what_it_had_dropped(
    it: Fixture, stock: tuple[StockExecutor, Scheduler, StockWorker], vhost: str
) -> None:
    """No worker was available, so its request was dropped (D6); another was left in the middle of its claim (D7)."""
    executor, scheduler, worker = stock
    await worker.heartbeat(age_seconds=3600)
    requested, claimed = await executor.create_execution(), await executor.create_execution()
    await executor.request(requested)
    consumer = scheduler.consumer
    assert consumer
    await eventually(lambda: consumer.failures)
    await it.host.session.execute("UPDATE execution SET status = 'scheduling' WHERE id = $1", claimed)
    await it.make_old([requested, claimed])
    await worker.heartbeat()

    async with AdminConnection(BrokerAddress(urls=[vhost])) as link:
        it.queue.counts = await count_queue(link, REQUESTS_QUEUE)
        await it.pass_minutes(3, it.a_watch())
    await publish_outbox(it.store, vhost)

    async def scheduled() -> bool:
        return await it.statuses([requested, claimed]) == {"scheduled"}

    await eventually(scheduled)


async def test_request_that_leaves_no_trace_in_the_row_is_repeated_too(it: Fixture) -> None:
    one = await it.a_stale_one(status="requested")
    for _ in range(4):
        await it.pass_minutes()
        await it.announcements_age(TIMEOUT)
    assert await it.requests() == [one, one, one]


async def test_execution_that_the_scheduler_drops_again_and_again_is_requested_with_growing_pauses_and_a_cap(
    it: Fixture,
) -> None:
    """Each time the scheduler takes it up and puts it back, which makes a new state of its row."""
    one = await it.a_stale_one(status="requested")
    requests = []
    for _ in range(17):
        await it.announcements_age(TIMEOUT)
        await it.make_old([one], TIMEOUT + 1)
        # A process that starts here, or another leader, goes on where the last one ended.
        await it.pass_minutes(1.5, it.a_watch(republish_limit=4))
        requests.append(len(await it.requests()))
    # After 1, 2 and 4 timeouts; then not again.
    assert [requests.index(number) + 1 for number in range(1, 5)] == [1, 2, 4, 8]
    assert requests[-1] == 4
    assert len({row["message_id"] for row in await it.host.outbox()}) == 4


async def test_count_starts_again_when_the_execution_was_scheduled(it: Fixture) -> None:
    one, other = await it.stale_ones(2, status="requested")
    watch = it.a_watch(republish_limit=1)
    await it.pass_minutes(2, watch)
    await it.host.session.execute("UPDATE execution SET status = 'scheduled' WHERE id = $1", one)
    assert await unscheduled_sql.delete_request_counts(it.store) == 1
    await it.host.session.execute("UPDATE execution SET status = 'requested' WHERE id = $1", one)
    await it.make_old([one, other], TIMEOUT + 1)
    await it.announcements_age(16 * TIMEOUT)
    await it.pass_minutes(2, watch)
    assert sorted(await it.requests()) == [one, one, other]


async def test_execution_is_not_requested_again_while_its_last_request_is_unconfirmed(it: Fixture) -> None:
    """No queue takes the requests, or the broker confirms none: they must not all go out together later."""
    one = await it.a_stale_one(status="requested")
    await it.pass_minutes()
    for _ in range(3):
        await it.announcements_age(16 * TIMEOUT, confirmed=False)
        await it.pass_minutes()
    assert await it.requests() == [one]

    await it.confirm_requests()
    await it.pass_minutes()

    assert await it.requests() == [one, one]
