"""What keeps the monitor from doing harm: bad rows, locks, other replicas, letters, brake, gate, shadow, the end."""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.endings.ender import Committed
from dlq_handler.errors import Braked, Contended, GateClosed, TooSlow, Unavailable
from dlq_handler.host.worker import QueueObservation
from dlq_handler.timeouts.decision import StaleOutcome, StaleRecord
from dlq_handler.timeouts.recorder import Suspect
from tests.support.deciding import letter_ender
from tests.support.host_tables import Host
from tests.support.stale_world import HOUR, SetObservation, StaleWorld

# More than a NOTIFY payload can carry: Attune's trigger then fails on every change of status.
TOO_LONG = {"task_name": "poison", "note": "x" * 9000}


@pytest.fixture
def it(store: Database, host: Host) -> StaleWorld:
    return StaleWorld(store, host)


async def test_row_that_the_database_refuses_is_isolated_and_tried_again_when_due(it: StaleWorld) -> None:
    worker = await it.a_dead_worker()
    ids = await it.stale_ones(20, worker=worker)
    poison = await it.host.add_execution(worker=worker)
    await it.host.session.execute("UPDATE execution SET workflow_task = $2 WHERE id = $1", poison, TOO_LONG)
    await it.make_old([poison])
    ids += await it.stale_ones(9, worker=worker)
    replica = it.a_replica(batch_size=30)

    await replica.scan()

    assert await it.statuses(ids) == {"failed"}
    assert await it.status(poison) == "scheduled"
    [refused] = [row for row in await it.decisions() if row["outcome"] == "update_failed"]
    assert (refused["execution_id"], refused["attempts"]) == (poison, 1)
    assert refused["error"].startswith("22023")
    assert replica.found == {
        ("scheduled", StaleOutcome.FAILED): 29,
        ("scheduled", StaleOutcome.UPDATE_FAILED): 1,
    }
    await replica.scan()
    assert sum(replica.found.values()) == 30, "not before it is due"

    await it.host.session.execute("UPDATE dlq_handler.stale_decision SET next_attempt_at = now()")
    await replica.scan()
    [refused] = [row for row in await it.decisions() if row["outcome"] == "update_failed"]
    assert refused["attempts"] == 2

    await it.host.session.execute(
        "SET session_replication_role = replica; UPDATE execution SET workflow_task = NULL;"
        "SET session_replication_role = DEFAULT; UPDATE dlq_handler.stale_decision SET next_attempt_at = now()"
    )
    await replica.scan()
    assert await it.status(poison) == "failed"


async def cancel_statements(it: StaleWorld, condition: str) -> None:
    """As statement_timeout does it, but by a condition on the executions that one statement changes."""
    await it.host.session.execute(
        "CREATE OR REPLACE FUNCTION cancel() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF (SELECT {condition} FROM changed) THEN RAISE EXCEPTION 'too slow' USING ERRCODE = '57014'; END IF;"
        " RETURN NULL; END $$;"
        "CREATE OR REPLACE TRIGGER cancel AFTER UPDATE ON execution REFERENCING NEW TABLE AS changed"
        " FOR EACH STATEMENT EXECUTE FUNCTION cancel()"
    )


async def test_a_page_that_takes_too_long_is_halved_until_it_fits(it: StaleWorld) -> None:
    ids = await it.stale_ones(60, worker=await it.a_dead_worker())
    await cancel_statements(it, "count(*) > 9")
    replica = it.a_replica(batch_size=60)

    await replica.scan()

    assert await it.statuses(ids) == {"failed"}
    assert replica.found == {("scheduled", StaleOutcome.FAILED): 60}
    assert replica.ender.size.now <= 9, "the size that worked is remembered"


async def test_what_was_committed_before_a_half_took_too_long_is_counted_and_published(
    it: StaleWorld,
) -> None:
    good, refused, slow = await it.stale_ones(3, worker=await it.a_dead_worker())
    await it.host.session.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = TG_ARGV[0]; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON execution FOR EACH ROW"
        f" WHEN (NEW.id = {refused}) EXECUTE FUNCTION refuse('22023');"
        "CREATE TRIGGER slow BEFORE UPDATE ON execution FOR EACH ROW"
        f" WHEN (NEW.id = {slow}) EXECUTE FUNCTION refuse('57014')"
    )
    replica = it.a_replica(batch_size=3)
    with pytest.raises(TooSlow):
        await replica.scan()

    assert await it.status(good) == "failed"
    assert [entry.message.execution_id for entry in replica.relay.offered] == [good]
    assert replica.found[("scheduled", StaleOutcome.FAILED)] == 1


async def test_one_execution_that_takes_too_long_alone_does_not_stop_the_others(it: StaleWorld) -> None:
    slow, *others = await it.stale_ones(20, worker=await it.a_dead_worker())
    await cancel_statements(it, f"coalesce(bool_or(id = {slow}), false)")
    replica = it.a_replica(batch_size=20)

    with pytest.raises(TooSlow):
        await replica.scan()
    [refused] = [row for row in await it.decisions() if row["outcome"] == "update_failed"]
    assert (refused["execution_id"], refused["attempts"]) == (slow, 1)
    assert "57014" in refused["error"]
    await replica.scan()
    assert await it.statuses(others) == {"failed"}
    assert await it.status(slow) == "scheduled"

    await it.host.session.execute(
        "DROP TRIGGER cancel ON execution; UPDATE dlq_handler.stale_decision SET next_attempt_at = now()"
    )
    await replica.scan()
    assert await it.status(slow) == "failed"


async def test_row_that_is_locked_elsewhere_is_left_to_the_next_scan(it: StaleWorld) -> None:
    locked, *others = await it.stale_ones(5, worker=await it.a_dead_worker())
    replica = it.a_replica()
    async with it.host.holding(locked):
        await replica.scan()
        assert await it.statuses(others) == {"failed"}
        assert await it.status(locked) == "scheduled"
    await replica.scan()
    assert await it.status(locked) == "failed"


async def test_of_two_replicas_only_the_leader_scans(it: StaleWorld) -> None:
    one, two = it.a_replica(name="one", batch_size=5), it.a_replica(name="two", batch_size=5)
    ids = await it.stale_ones(40, worker=await it.a_dead_worker())
    async with asyncio.TaskGroup() as both:
        both.create_task(one.scan())
        both.create_task(two.scan())
    assert sorted((one.scans or 0, two.scans or 0)) == [0, 1]
    assert await it.changes() == [(each, "failed") for each in sorted(ids)]
    assert len({row["replica"] for row in await it.decisions()}) == 1


class Usurped(SetObservation):
    """Before the third page another replica takes the lease."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    async def observe(self, worker_ids: Collection[int]) -> dict[int, QueueObservation | None]:
        if len(self.asked) == 2:
            await self._host.session.execute("UPDATE dlq_handler.lease SET holder = 'another'")
        return await super().observe(worker_ids)


async def test_leader_that_loses_the_lease_writes_no_further_page(it: StaleWorld) -> None:
    it.queue_observer = Usurped(it.host)
    await it.stale_ones(50, worker=await it.a_dead_worker())
    replica = it.a_replica(batch_size=10)
    await replica.scan()
    # The second page was beside the third: in time, or not.
    assert len(await it.changes()) in (10, 20)
    assert len(await it.decisions()) == len(await it.host.outbox()) == len(await it.changes())
    assert not replica.leadership.is_leader


class Stopping(SetObservation):
    stop: asyncio.Event

    async def observe(self, worker_ids: Collection[int]) -> dict[int, QueueObservation | None]:
        self.stop.set()
        return await super().observe(worker_ids)


async def test_scan_ends_after_the_current_batch_when_asked_to_stop(it: StaleWorld) -> None:
    it.queue_observer = queue_observer = Stopping()
    queue_observer.stop = asyncio.Event()
    await it.stale_ones(50, worker=await it.a_dead_worker())
    replica = it.a_replica(batch_size=10)
    await replica.leadership.tick()
    async with asyncio.timeout(30):
        await replica.monitor.run(queue_observer.stop)
    assert len(await it.changes()) == 10


async def test_letters_and_the_monitor_at_the_same_rows_make_one_change_and_one_completion_event(
    it: StaleWorld,
) -> None:
    worker = await it.a_dead_worker()
    ids = await it.stale_ones(120, worker=worker)
    letters = [await it.host.letter_for(one) for one in ids]
    decide = letter_ender(it.store)
    replica = it.a_replica(batch_size=5)
    await replica.leadership.tick()

    async def decide_from_the_other_end() -> None:
        for last in range(len(letters), 0, -5):
            await decide.commit(letters[last - 5 : last])

    async with asyncio.TaskGroup() as race:
        race.create_task(decide_from_the_other_end())
        race.create_task(replica.monitor.tick())
    # What either found locked it held over; now it is free.
    await decide.commit(letters)
    await replica.scan()

    assert await it.changes() == [(one, "failed") for one in sorted(ids)]
    assert Counter(row["execution_id"] for row in await it.host.outbox()) == Counter(ids)
    by_letter = {row["execution_id"] for row in await it.host.letters() if row["outcome"] == "failed"}
    by_monitor = {row["execution_id"] for row in await it.decisions()}
    assert by_letter
    assert by_monitor
    assert not by_letter & by_monitor
    assert by_letter | by_monitor == set(ids)


async def test_brake_ends_the_scan_and_what_did_not_fit_waits(it: StaleWorld) -> None:
    ids = await it.stale_ones(30, worker=await it.a_dead_worker())
    replica = it.a_replica(batch_size=8, limit=10)
    # The page beside the one that trips it may meet the tripped brake, or see the same room for two.
    with suppress(Braked):
        await replica.scan()
    ended = len(await it.changes())
    assert ended in (10, 12)
    with pytest.raises(Braked):
        await replica.scan()
    assert len(await it.changes()) == ended
    for _ in range(2):
        # As if a minute had passed, and the hold.
        await it.host.session.execute(
            "DELETE FROM dlq_handler.change_count; UPDATE dlq_handler.brake SET tripped_at = NULL, hold_until = NULL"
        )
        with suppress(Braked):
            await replica.scan()
    assert await it.statuses(ids) == {"failed"}
    assert len(await it.host.outbox()) == 30


async def test_nothing_is_scanned_while_the_gate_is_closed(
    it: StaleWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = await it.a_stale_one(worker=await it.a_dead_worker())
    replica = it.a_replica()

    def closed() -> None:
        raise GateClosed("on purpose")

    monkeypatch.setattr(replica.gate, "check", closed)
    with pytest.raises(GateClosed):
        await replica.scan()
    assert await it.status(stale) == "scheduled"


async def test_gate_that_closes_ends_the_scan(it: StaleWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await it.stale_ones(50, worker=await it.a_dead_worker())
    replica = it.a_replica(batch_size=10)

    def closes_before_the_third_page() -> None:
        if len(it.queue_observer.asked) >= 3:
            raise GateClosed("on purpose")

    monkeypatch.setattr(replica.gate, "check", closes_before_the_third_page)
    with pytest.raises(GateClosed):
        await replica.scan()
    # The second page was beside the third: in time, or not.
    assert len(await it.changes()) in (10, 20)


BUG, AWAY, LOCKED = TypeError("a bug"), Unavailable("database", "away"), Contended("a lock")


@pytest.mark.parametrize(
    ("errors", "raised"),
    [([LOCKED, BUG], BUG), ([BUG, LOCKED], BUG), ([LOCKED, AWAY], AWAY), ([AWAY, LOCKED], AWAY)],
    ids=repr,
)
async def test_of_two_pages_that_fail_at_once_the_worse_error_is_the_scans(
    it: StaleWorld, monkeypatch: pytest.MonkeyPatch, errors: list[Exception], raised: Exception
) -> None:
    await it.stale_ones(30, worker=await it.a_dead_worker())
    replica, both, left = it.a_replica(batch_size=10), asyncio.Barrier(2), list(errors)
    commit = replica.ender.commit

    async def fails_but_for_the_first_page(batch: Sequence[Suspect]) -> Committed[StaleRecord]:
        if not batch[0].facts.checks:
            return await commit(batch)
        error = left.pop(0)
        await both.wait()
        raise error

    monkeypatch.setattr(replica.ender, "commit", fails_but_for_the_first_page)
    with pytest.raises(type(raised)) as caught:
        await replica.scan()

    assert caught.value is raised
    assert len(await it.changes()) == 10


async def test_clock_that_jumps_ahead_ends_nothing_that_was_young_before_it(it: StaleWorld) -> None:
    worker = await it.a_worker()
    ids = [
        await it.a_stale_one(worker=worker, age_seconds=3 * HOUR),
        await it.a_stale_one(worker=await it.a_dead_worker(), age_seconds=3 * HOUR),
        await it.a_stale_one(worker=worker, status="canceling", age_seconds=3 * HOUR),
    ]
    jumped, steady = it.a_replica(name="jumped"), it.a_replica(name="steady")
    # A moment ago the database's clock was three hours behind: these executions are young.
    now = await it.host.session.fetchval("SELECT clock_timestamp()")
    found_at = monotonic_seconds()
    jumped.gate.see_clock(now - timedelta(hours=3), asked_at=found_at, answered_at=found_at)
    for _ in range(2):
        await jumped.scan()
    assert await it.changes() == []

    await it.host.session.execute("DELETE FROM dlq_handler.lease")
    await steady.scan()
    assert await it.statuses(ids) == {"failed", "cancelled"}


async def test_in_shadow_mode_what_would_have_been_done_is_on_record_once_and_nothing_else_happens(
    it: StaleWorld,
) -> None:
    worker = await it.a_dead_worker()
    ids = [
        await it.a_stale_one(worker=worker),
        await it.a_stale_one(worker=worker, status="running"),
        await it.a_stale_one(worker=worker, status="canceling"),
    ]
    shadow = it.a_replica(is_shadow=True)
    for _ in range(3):
        await shadow.scan()
        await it.looks_age(30)
    assert await it.changes() == []
    assert await it.host.outbox() == []
    assert {(row["execution_id"], row["outcome"], row["is_shadow"]) for row in await it.decisions()} == set(
        zip(ids, ("failed", "abandoned", "cancelled"), (True, True, True), strict=True)
    )
    assert len(await it.decisions()) == sum(shadow.found.values()) == 3


@pytest.mark.parametrize("is_shadow", [False, True])
async def test_looks_of_a_shadow_and_of_the_real_leader_do_not_count_for_each_other(
    it: StaleWorld, is_shadow: bool
) -> None:
    stale = await it.a_stale_one(worker=await it.a_dead_worker(), status="running")
    one, other = it.a_replica(is_shadow=not is_shadow), it.a_replica(is_shadow=is_shadow)
    await one.scan()
    await it.looks_age(30)
    await other.scan()
    assert await it.decisions() == []
    await it.looks_age(30)
    await other.scan()
    [kept] = await it.decisions()
    assert (kept["execution_id"], kept["outcome"], kept["is_shadow"]) == (stale, "abandoned", is_shadow)
