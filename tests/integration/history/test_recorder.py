"""The history_recorder writes down what happens, and nothing that does not."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from unittest.mock import AsyncMock

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.errors import Unavailable
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.recorder import HistoryRecorder
from dlq_handler.rooms import new_metrics
from dlq_handler.safety import brake_sql
from dlq_handler.safety.gate import GateCause
from dlq_handler.safety.gate_service import Gate
from dlq_handler.workers.availability import Availability
from tests.integration.history.test_history import is_lock_of_events, noted_statements
from tests.support.deciding import letter_ender, letter_recorder
from tests.support.eventually import eventually
from tests.support.fail_safe import a_brake, a_gate
from tests.support.host_tables import Host


class Replica:
    """A recorder with its sources."""

    def __init__(
        self, store: Database, name: str = "one", *, is_shadow: bool = False, **options: Any
    ) -> None:
        self.store = store
        self.consuming_seconds, self.decided = 0.0, 0
        self.availabilities: Mapping[int, Availability] | None = None
        self.began_at: Mapping[int, datetime] = {}
        services: Any = self
        self.gate: Gate = a_gate(store)
        self.brake = a_brake(store)
        self.leadership = Leadership(store, "leader", holder=name, metrics=new_metrics())
        self.history_recorder = HistoryRecorder(
            store,
            replica=name,
            leadership=self.leadership,
            gate=self.gate,
            brake=self.brake,
            consumer=None if is_shadow else services,
            decided=lambda: self.decided,
            worker_watch=services,
            **options,
        )

    async def recorded(self) -> list[tuple[str, str | None]]:
        return [(one.kind, one.subject) for one in await events_sql.after(self.store, 0)]


async def test_a_process_records_its_start_its_decisions_and_its_end(store: Database) -> None:
    replica, stop = Replica(store, decided_seconds=3600), asyncio.Event()
    replica.decided = 3

    async def has_recorded() -> bool:
        return len(await replica.recorded()) == 2

    async with asyncio.TaskGroup() as running:
        running.create_task(replica.history_recorder.run(stop))
        await eventually(has_recorded)
        replica.decided = 5
        stop.set()
    recorded = await events_sql.after(store, 0)
    assert sorted(one.kind for one in recorded) == [
        "letters.decided",
        "letters.decided",
        "replica.started",
        "replica.stopped",
    ]
    assert [one.detail for one in recorded if one.kind == "letters.decided"] == ["3", "2"]
    assert {one.replica for one in recorded} == {"one"}


async def test_events_of_a_tick_that_is_not_committed_are_recorded_by_the_next(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(store)
    with monkeypatch.context() as broken:
        broken.setattr(store, "_commit", AsyncMock(side_effect=Unavailable("database", "lost")))
        with pytest.raises(Unavailable):
            await replica.history_recorder.tick()
    assert await replica.recorded() == []
    await replica.history_recorder.tick()
    assert await replica.recorded() == [("replica.started", "one")]


async def test_the_lock_of_the_events_is_taken_when_everything_else_is_written(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every action of an operator waits for it, and needs it most when a whole fleet becomes unavailable."""
    replica, workers = Replica(store), [await host.add_worker() for _ in range(3)]
    replica.availabilities = dict.fromkeys(workers, Availability.AVAILABLE)
    await replica.leadership.tick()
    await replica.history_recorder.tick()
    async with store.transaction() as tx:
        await brake_sql.trip(tx, by="one", explanation="too many", hold_seconds=600)
    await replica.brake.tick()
    replica.gate._set(GateCause.CLOCK_JUMP, "it jumped")
    replica.availabilities = dict.fromkeys(workers, Availability.UNAVAILABLE)

    statements = noted_statements(monkeypatch)
    await replica.history_recorder.tick()

    late = statements[next(place for place, sql in enumerate(statements) if is_lock_of_events(sql)) :]
    assert [sql for sql in late if not is_lock_of_events(sql) and "INTO own.history_event" not in sql] == []
    recorded = [kind for kind, _ in await replica.recorded()]
    assert sorted(recorded[1:]) == ["brake.tripped", "gate.closed", *["worker.unavailable"] * 3]


async def test_without_a_decision_no_event_is_recorded(store: Database) -> None:
    replica = Replica(store)
    await replica.history_recorder.record_decided()
    replica.decided = 2
    for _ in range(3):
        await replica.history_recorder.record_decided()
    assert await replica.recorded() == [("letters.decided", None)]


async def test_a_quarter_counts_as_observed_if_a_replica_consumed_throughout_it(
    store: Database, host: Host
) -> None:
    replica, shadow = Replica(store), Replica(store, is_shadow=True)
    # it was back before the quarter was over: what died meanwhile has not come.
    replica.consuming_seconds, shadow.consuming_seconds = 10.0, 3600.0
    for one in (replica, shadow):
        await one.history_recorder.tick()
    assert await host.session.fetchval("SELECT count(*) FROM dlq_handler.observed_minute") == 0
    replica.consuming_seconds = 120.0
    await replica.history_recorder.tick()
    assert await host.session.fetchval("SELECT count(*) FROM dlq_handler.observed_minute") == 1


async def test_the_leader_alone_records_workers_by_their_names(store: Database, host: Host) -> None:
    replica = Replica(store)
    worker = await host.add_worker()
    name = await host.session.fetchval("SELECT name FROM worker WHERE id = $1", worker)
    replica.availabilities = {worker: Availability.AVAILABLE}
    await replica.history_recorder.tick()
    now = await host.session.fetchval("SELECT now() + interval '1 hour'")
    past = await host.session.fetchval("SELECT now() - interval '1 hour'")
    assert await history_sql.timelines(store, since=past, until=now) == []
    await replica.leadership.tick()
    await replica.history_recorder.tick()
    replica.availabilities = {worker: Availability.UNAVAILABLE}
    await replica.history_recorder.tick()
    replica.availabilities = None
    await replica.history_recorder.tick()
    [timeline] = await history_sql.timelines(store, since=past, until=now)
    assert (timeline.worker_id, timeline.name) == (worker, name)
    assert timeline.segments[-1].availability is Availability.UNAVAILABLE, "who cannot look ends no timeline"
    assert await replica.recorded() == [("replica.started", "one"), ("worker.unavailable", name)]


async def test_leader_that_leads_again_records_what_another_one_changed(store: Database, host: Host) -> None:
    one, two = Replica(store), Replica(store, "two")
    worker = await host.add_worker()
    for replica, availability in (
        (one, Availability.AVAILABLE),
        (two, Availability.UNAVAILABLE),
        (one, Availability.AVAILABLE),
    ):
        await host.session.execute("UPDATE dlq_handler.lease SET until = now() - interval '1 s'")
        await replica.leadership.tick()
        for other in (one, two):
            await other.leadership.tick()
            other.availabilities = {worker: availability} if other is replica else None
            await other.history_recorder.tick()
    kinds = [kind for kind, _ in await one.recorded()]
    assert [kind for kind in kinds if kind.startswith("worker.")] == [
        "worker.unavailable",
        "worker.available",
    ]


async def test_unchanged_workers_are_observed_without_reading_them(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_handler.history.recorder.WORKERS_SECONDS", 0.0)
    replica = Replica(store)
    replica.availabilities = {await host.add_worker(): Availability.AVAILABLE}
    await replica.leadership.tick()
    await replica.history_recorder.tick()
    await host.session.execute("DELETE FROM dlq_handler.observed_minute")
    monkeypatch.setattr(history_sql, "record_workers", AsyncMock(side_effect=AssertionError))
    await replica.history_recorder.tick()
    assert await host.session.fetchval("SELECT count(*) FROM dlq_handler.observed_minute") == 1


async def test_each_replica_records_its_own_gate(store: Database) -> None:
    replica = Replica(store)
    replica.gate._set(GateCause.YOUNG_LINK, "every process begins so")
    await replica.history_recorder.tick()
    replica.gate._set(GateCause.CLOCK_JUMP, "it jumped")
    for _ in range(2):
        await replica.history_recorder.tick()
    replica.gate._set(GateCause.CLOCK_JUMP, None)
    await replica.history_recorder.tick()
    assert (await replica.recorded())[1:] == [("gate.closed", "clock_jump"), ("gate.opened", "clock_jump")]


async def test_all_replicas_see_the_brake_and_it_is_recorded_once(store: Database, host: Host) -> None:
    replicas = [Replica(store, "one"), Replica(store, "two")]

    async def look() -> list[tuple[str, str | None]]:
        for _ in range(2):
            for one in replicas:
                # As the state reader does on every replica.
                await one.brake.tick()
                await one.history_recorder.tick()
        return (await replicas[0].recorded())[2:]

    assert await look() == []
    async with store.transaction() as tx:
        await brake_sql.trip(tx, by="one", explanation="too many", hold_seconds=600)
    assert await look() == [("brake.tripped", "one")]
    tripped_at = await host.session.fetchval("SELECT tripped_at FROM dlq_handler.brake")
    assert (await events_sql.after(store, 0))[-1].at == tripped_at
    async with store.transaction() as tx:
        await brake_sql.release(tx, by="me@here", for_seconds=60)
    replicas.append(Replica(store, "came later"))
    recorded = await look()
    assert [kind for kind, _ in recorded if kind.startswith("brake")] == ["brake.tripped", "brake.released"]


async def test_what_happened_to_the_brake_days_ago_is_no_news(store: Database, host: Host) -> None:
    await host.session.execute("UPDATE dlq_handler.brake SET released_at = now() - interval '3 days'")
    replica = Replica(store)
    await replica.brake.tick()
    await replica.history_recorder.tick()
    assert await replica.recorded() == [("replica.started", "one")]


async def test_recorded_dead_letters_are_counted(store: Database, host: Host) -> None:
    recorder = letter_recorder(a_gate(store))
    decide = letter_ender(store, recorder=recorder)
    letters = [await host.letter_for(one) for one in await host.add_executions(3)]
    await decide.commit(letters)
    await decide.commit(letters)
    assert recorder.recorded == 3
