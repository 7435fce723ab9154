"""The diagnoser keeps what it saw, says since when, and the leader puts changes on record."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.diagnosis import diagnoses_sql, shared_view_sql
from dlq_handler.diagnosis.check_replica import Patience
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.collector_database import CollectorOptions, collect_from_database
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnoser import TOO_OLD_SECONDS, Diagnoser, Observed
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health, conclusion_of
from dlq_handler.diagnosis.observe import observe, with_live_replica
from dlq_handler.diagnosis.view import WITHOUT_DATABASE, BrokerFact, DatabaseFact, LeaderFact, Unknown, View
from dlq_handler.endings.database_watch import DatabaseWatch
from dlq_handler.health import Readiness
from dlq_handler.history import events_sql
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate import GateCause, GateState
from dlq_handler.safety.gate_service import Gate
from dlq_handler.safety.options import BrakeOptions
from dlq_handler.timeouts.options import MonitorOptions
from tests.support.eventually import eventually
from tests.support.host_tables import Host
from tests.support.tcp_proxy import TcpProxy
from tests.support.views import NOW, POLICY, a_brake, a_queue, a_view, a_worker, collector_of

AWAY = BrokerFact(error="no route to host")
MINUTE = timedelta(minutes=1)
PATIENCE = Patience(opens_within_seconds=3600, leads_within_seconds=3600)


class Replica:
    def __init__(self, store: Database, name: str = "one", *, is_shadow: bool = False) -> None:
        self.store = store
        self.view: View = a_view()
        self.leadership = Leadership(store, "leader", holder=name, metrics=new_metrics())
        self.diagnoser = Diagnoser(
            store,
            collector_of(lambda: self.view, is_shadow=is_shadow),
            leadership=self.leadership,
            replica=name,
            patience=PATIENCE,
        )

    async def look(self, minute: float = 0, **changed: Any) -> Diagnosis:
        """The worst of what it says."""
        whole = a_view(**changed)
        self.view = View(
            **{name: getattr(whole, name) for name in View.__slots__} | {"at": NOW + minute * MINUTE}
        )
        await self.diagnoser.tick()
        return self.seen.diagnoses[0]

    @property
    def seen(self) -> Observed:
        assert self.diagnoser.latest is not None
        return self.diagnoser.latest

    async def recorded(self) -> int:
        return len([one for one in await events_sql.after(self.store, 0) if one.kind == "diagnosis.changed"])


async def test_the_answer_is_kept_with_its_view(store: Database) -> None:
    replica = Replica(store)
    worst = await replica.look(broker=AWAY)
    assert (worst.check, worst.health) == ("broker", Health.PROBLEM)
    assert (replica.seen.view.broker, replica.seen.at) == (AWAY, NOW)


async def test_a_look_that_fails_for_long_does_not_leave_it_green(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(store)
    assert (await replica.look()).health is Health.OK
    long_after = replica.seen.taken_at + TOO_OLD_SECONDS + 1
    monkeypatch.setattr("dlq_handler.diagnosis.diagnoser.monotonic_seconds", lambda: long_after)

    assert {one.health for one in replica.seen.diagnoses} == {Health.UNKNOWN}
    assert isinstance(replica.seen.view.workers, Unknown)
    assert replica.seen.at == NOW, "as old as it is"
    assert (await replica.look(2)).health is Health.OK


async def test_a_replica_that_is_back_does_not_advise_to_start_one(store: Database) -> None:
    replica = Replica(store)
    await replica.look(database=DatabaseFact(is_unreachable=True, error="away"), leader=Unknown("away"))

    await replica.look(1, leader=LeaderFact(is_held=False), intake=a_queue("intake", count=0))

    by_check = {one.check.value: one for one in replica.seen.diagnoses}
    assert (by_check["timeout monitor"].health, by_check["replicas"].health) == (
        Health.UNKNOWN,
        Health.UNKNOWN,
    )


async def test_a_problem_is_dated_by_its_first_observation_also_by_a_later_process(
    store: Database,
) -> None:
    first = Replica(store)
    await first.leadership.tick()
    assert (await first.look(0, broker=AWAY)).since == NOW
    assert (await first.look(3, broker=AWAY)).since == NOW
    second = Replica(store, "two")
    assert (await second.look(9, broker=AWAY)).since == NOW
    assert (await second.look(10)).health is Health.OK
    assert (await second.look(11, broker=AWAY)).since == NOW + 11 * MINUTE


async def test_changes_are_recorded_by_the_leader_alone(store: Database) -> None:
    leader, other = Replica(store), Replica(store, "two")
    await leader.leadership.tick()
    for minute, changed in ((0, {}), (1, {}), (2, {"broker": AWAY}), (3, {"broker": AWAY}), (4, {})):
        await other.look(minute, **changed)
        await leader.look(minute, **changed)
    assert await leader.recorded() == 3
    assert {one.replica for one in await events_sql.after(store, 0)} == {"one"}
    assert [_worst(await diagnoses_sql.as_of(store, NOW + minute * MINUTE)) for minute in (1, 3, 4)] == [
        ("ok", NOW),
        ("problem", NOW + 2 * MINUTE),
        ("ok", NOW + 4 * MINUTE),
    ]


async def test_a_view_without_a_change_is_shared_without_the_lock_of_the_events(store: Database) -> None:
    """Every action of an operator waits for that lock, and the view of a large fleet is megabytes."""
    leader = Replica(store)
    await leader.leadership.tick()
    await leader.look(0)
    async with store.transaction() as tx:
        await events_sql.take_turn(tx)
        await leader.look(1)
    shared = await shared_view_sql.read_shared(store)
    assert shared is not None
    assert shared.at == NOW + MINUTE


async def test_two_that_take_themselves_for_the_leader_record_a_change_once(
    store: Database, host: Host
) -> None:
    two = Replica(store, "two")
    await two.leadership.tick()

    async def waits() -> bool:
        waiting = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(await host.session.fetch(waiting))

    async with asyncio.TaskGroup() as looks, store.transaction() as tx:
        # As the other one, which has not committed yet.
        await shared_view_sql.share(tx, [], at=NOW, interval_seconds=10, replica="one")
        await diagnoses_sql.record_change(tx, diagnose(a_view(broker=AWAY)), at=NOW)
        looks.create_task(two.look(1, broker=AWAY))
        await eventually(waits)
    assert await two.recorded() == 0


async def test_words_of_a_problem_that_lasts_are_refreshed_now_and_then(store: Database) -> None:
    leader = Replica(store)
    await leader.leadership.tick()
    for minute in range(12):
        trouble = BrokerFact(error=f"away for {minute} min")
        await leader.look(minute, broker=trouble)
    assert await leader.recorded() == 3
    found = await diagnoses_sql.as_of(store, NOW + 11 * MINUTE)
    assert found is not None
    assert "away for 10 min" in found[1][0].explanation


async def test_a_new_leader_does_not_record_what_is_on_record(store: Database) -> None:
    first, second = Replica(store), Replica(store, "two")
    await first.leadership.tick()
    await first.look(0, broker=AWAY)
    await first.leadership._give_up()
    await second.leadership.tick()
    await second.look(1, broker=AWAY)
    assert await second.recorded() == 1


async def test_a_night_without_a_database_is_on_record_in_the_morning(store: Database) -> None:
    leader = Replica(store)
    await leader.leadership.tick()
    await leader.look(0)
    gone = DatabaseFact(is_unreachable=True, error="connection refused")
    await leader.look(1, database=gone)
    await leader.look(2, database=gone)
    await leader.look(3, database=gone, broker=AWAY)
    assert await leader.recorded() == 1
    await leader.look(4)
    assert await leader.recorded() == 4
    found = [await diagnoses_sql.as_of(store, NOW + minute * MINUTE) for minute in (2, 3, 4)]
    assert [one[1][0].check if one else None for one in found[:2]] == ["database", "database"]
    assert [_worst(one) for one in found] == [
        ("problem", NOW + MINUTE),
        ("problem", NOW + 3 * MINUTE),
        ("ok", NOW + 4 * MINUTE),
    ]


async def test_a_problem_that_is_unknown_for_a_while_keeps_its_date(store: Database) -> None:
    replica = Replica(store)
    await replica.look(0, broker=AWAY)
    assert (await replica.look(1, broker=Unknown("no answer"))).health is Health.UNKNOWN
    assert (await replica.look(2, broker=AWAY)).since == NOW


def _worst(found: tuple[Any, list[Diagnosis]] | None) -> tuple[str, Any]:
    assert found is not None
    return found[1][0].health.value, found[0]


async def test_an_outage_of_the_database_is_known_without_waiting_for_the_next_look(
    store: Database, database: str
) -> None:
    """Neither watch nor diagnoser looks again within this test: the lost connection itself is the news."""
    async with TcpProxy.to(database) as proxy:
        ours = Database(proxy.url, application_name="outage-test")
        replica, readiness, stop = Replica(ours), Readiness(), asyncio.Event()
        metrics = new_metrics()
        watch = DatabaseWatch(ours, readiness=readiness, metrics=metrics, interval_seconds=3600)

        async def has_looked() -> bool:
            """The outage must not begin in the middle of the first look, which ends with the outbox."""
            return metrics.registry.get_sample_value("dlq_handler_outbox_pending") == 0

        async def is_known() -> bool:
            return not readiness.checks["database"].ok

        async with asyncio.TaskGroup() as running:
            running.create_task(watch.run(stop))
            try:
                await eventually(has_looked)
                assert (await replica.look()).health is Health.OK
                before = datetime.now(UTC)
                await proxy.refuse()
                await eventually(is_known)
            finally:
                stop.set()

        assert readiness.checks["database"].detail.startswith("unreachable (")
        first, *others = replica.seen.diagnoses
        assert (first.check, first.headline) == ("database", "The database is unreachable")
        # Which of the two was met first depends on the moment: the lost query, or the refused connection.
        assert "unreachable (" in first.explanation
        assert first.since is not None
        assert before <= first.since <= datetime.now(UTC)
        unknown = {one.check: one.explanation for one in others if one.health is Health.UNKNOWN}
        assert set(unknown.values()) == {"the database is unreachable"}
        assert {"workers", "worker unavailable", "worker queue", "canary", "brake", "own tables"} <= set(
            unknown
        )

        await proxy.heal()
        await ours.ping()
        assert replica.seen.diagnoses[0].health is Health.OK, "the last look counts again"
        await ours.dispose()


async def test_an_outage_that_begins_during_an_observation_is_one_outage(
    store: Database, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with TcpProxy.to(database) as proxy:
        ours = Database(proxy.url, application_name="outage-test")

        async def refused(_: Database) -> None:
            await proxy.refuse()
            await ours.ping()

        monkeypatch.setattr("dlq_handler.diagnosis.status_sql.waiting_events", refused)
        facts = await collect_from_database(
            ours,
            CollectorOptions(
                availability=POLICY,
                brake=BrakeOptions(max_decisions_per_minute=500, hold_seconds=600),
                canary=None,
                lease="leader",
                intake_queue="q",
                completed_queue="c",
                requests_queue="r",
                monitor=MonitorOptions(),
                is_shadow=False,
                attune_monitor_is_enabled=False,
            ),
        )
        await ours.dispose()

    assert facts.database.is_unreachable
    assert facts.database.since is not None
    assert (facts.tables, facts.workers, facts.probes) == (WITHOUT_DATABASE,) * 3


async def test_other_replicas_and_commands_read_what_the_leader_observed(store: Database) -> None:
    leader, other = Replica(store), Replica(store, "two")
    await leader.leadership.tick()
    now = await database_time(store)
    minutes = (now - NOW) / MINUTE
    await leader.look(minutes, broker=AWAY)

    worst = await other.look(minutes, alarms=["memory alarm"])
    observed = await observe(store, collector_of(a_view).collect, is_shadow=False)

    assert (worst.check, worst.since) == ("broker", now), "not what it would have collected itself"
    assert other.seen.at == now
    assert observed.view.broker == AWAY
    assert (observed.diagnoses[0].check, observed.diagnoses[0].since) == ("broker", now)
    assert observed.view.own is None
    assert observed.replica == "one"
    assert observed.age_seconds > 0


@pytest.mark.parametrize("is_shadow", [False, True])
async def test_a_view_of_the_other_mode_is_not_taken_for_ones_own(store: Database, is_shadow: bool) -> None:
    """A replica in the other mode reads another intake queue, and ends executions or ends none."""
    now = await database_time(store)
    leader = Replica(store)
    await leader.leadership.tick()
    await leader.look((now - NOW) / MINUTE, broker=AWAY, is_shadow=not is_shadow)
    own = a_view(is_shadow=is_shadow)

    observed = await observe(store, collector_of(own).collect, is_shadow=is_shadow)
    assert observed.view == replace(own, live_replica="one" if is_shadow else None)
    assert observed.replica is None
    assert await with_live_replica(own, store) == observed.view
    other = Replica(store, "two", is_shadow=is_shadow)
    assert await other.look((now - NOW) / MINUTE) is not None
    assert isinstance(other.seen.view.broker, BrokerFact)
    assert other.seen.view.broker != AWAY


async def test_a_trip_of_the_brake_is_shown_before_the_next_observation(store: Database) -> None:
    replica = Replica(store)
    await replica.look()
    tripped = a_brake(tripped_at=NOW, tripped_by="one", explanation="many").view
    later = replace(tripped, now=NOW + MINUTE)
    replica.diagnoser._brake = cast("Brake", SimpleNamespace(recent_view=lambda: later))

    assert (replica.seen.diagnoses[0].check, replica.seen.diagnoses[0].since) == ("brake", NOW)


async def test_a_hold_of_the_brake_that_ends_is_shown_before_the_next_observation(store: Database) -> None:
    replica = Replica(store)
    holding = a_brake(tripped_at=NOW, tripped_by="one", hold_until=NOW + MINUTE)
    await replica.look(brake=holding)
    assert "nothing is ended" in replica.seen.diagnoses[0].explanation
    over = replace(holding.view, now=NOW + 2 * MINUTE)
    replica.diagnoser._brake = cast("Brake", SimpleNamespace(recent_view=lambda: over))

    assert "are ended in a minute now" in replica.seen.diagnoses[0].explanation


async def test_a_gate_that_closes_is_shown_at_once_and_diagnosed_once(store: Database) -> None:
    replica = Replica(store)
    assert (await replica.look()).health is Health.OK
    gate = SimpleNamespace(state=GateState(causes={}))
    replica.diagnoser._gate = cast("Gate", gate)
    assert replica.seen.diagnoses[0].health is Health.OK

    closed_at = NOW + timedelta(seconds=3)
    gate.state = GateState(
        causes={GateCause.RECOVERY: "a standby"}, closed_at={GateCause.RECOVERY: closed_at}
    )
    assert (replica.seen.diagnoses[0].check, replica.seen.diagnoses[0].since) == (
        Check.SAFETY_GATE,
        closed_at,
    )
    assert replica.seen is replica.seen, "a page asks for it many times"
    gate.state = GateState(causes={})
    assert replica.seen.diagnoses[0].health is Health.OK


async def test_a_part_that_is_no_longer_ready_is_observed_at_once(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_handler.diagnosis.diagnoser.LEAST_SECONDS", 0.0)
    view, readiness, stop = a_view(), Readiness(), asyncio.Event()
    diagnoser = Diagnoser(
        store,
        collector_of(lambda: view),
        leadership=Leadership(store, "leader", holder="one", metrics=new_metrics()),
        replica="one",
        patience=PATIENCE,
        readiness=readiness,
        interval_seconds=3600,
    )

    def worst() -> Check | None:
        return diagnoser.latest.diagnoses[0].check if diagnoser.latest else None

    async with asyncio.TaskGroup() as running:
        running.create_task(diagnoser.run(stop))
        try:
            await eventually(worst)
            view = a_view(broker=AWAY)
            readiness.report("broker", ok=True, detail="answers")
            readiness.report("broker", ok=False, detail="lost")
            await eventually(lambda: worst() is Check.BROKER)
        finally:
            stop.set()


async def test_a_restarted_replica_shows_the_last_shared_view_until_it_knows_more(store: Database) -> None:
    """OS7 of the operating review: the first page after a restart said unknown, and left out a worker."""
    now = await database_time(store)
    minutes = (now - NOW) / MINUTE
    before = Replica(store)
    await before.leadership.tick()
    assert (await before.look(minutes, workers=(a_worker(silent_seconds=400),))).check is Check.WORKERS
    since = before.seen.diagnoses[0].since
    assert since is not None
    stop = asyncio.Event()
    stop.set()
    await before.diagnoser.run(stop)
    kept = await shared_view_sql.read_shared(store)
    assert kept is not None
    assert not kept.is_valid, "commands do not report it as if a replica still ran"

    after = Replica(store)
    await after.leadership.tick()
    shown: list[Diagnosis] = []

    async def collect() -> View:
        shown.append(after.seen.diagnoses[0])
        return await collect_own()

    collect_own = after.diagnoser._collector.collect
    after.diagnoser._collector.collect = collect  # type: ignore[method-assign]  # what is shown until it answers
    # It has just connected, so it does not know by itself whether the worker is unavailable.
    own = (a_worker(silent_seconds=400, watched_seconds=1),)
    known = await after.look(minutes + 0.1, workers=own)

    for one in (shown[0], known):
        assert (one.check, one.health, one.since) == (Check.WORKERS, Health.PROBLEM, since)
    unheard = (a_worker(silent_seconds=390, watched_seconds=1),)
    assert (await after.look(minutes + 0.2, workers=unheard)).health is Health.UNKNOWN, (
        "it has sent a heartbeat"
    )


async def test_a_shared_view_that_is_too_old_is_not_read(store: Database) -> None:
    leader, other = Replica(store), Replica(store, "two")
    await leader.leadership.tick()
    minutes = (await database_time(store) - NOW) / MINUTE
    await leader.look(minutes - 0.6, broker=AWAY)

    assert (await other.look(minutes)).health is Health.OK
    observed = await observe(store, collector_of(a_view).collect, is_shadow=False)
    assert conclusion_of(observed.diagnoses) is Health.OK


async def database_time(store: Database) -> datetime:
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT clock_timestamp() AS now")
    found: datetime = row.now
    return found
