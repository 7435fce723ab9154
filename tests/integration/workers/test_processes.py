"""Executions of workers that were restarted under their names, on stock Attune's tables."""

import json
from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Any, cast

import pytest

from dlq_handler.broker.admin.snapshot import ConsumerFacts
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.explain.explain import observe_case
from dlq_handler.host import stale_sql
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.decide import decide_stale
from dlq_handler.timeouts.decision import End, StaleOutcome, Wait
from dlq_handler.workers import connections_sql, processes
from dlq_handler.workers.connection_source import PAUSE_SECONDS, ConnectionSource
from dlq_handler.workers.worker_process import KEPT_SECONDS
from tests.support.host_tables import Host
from tests.support.stale_world import LIMITS, Replica, StaleWorld

NAMES = WorkerQueueNames()
MINUTE = 60.0


class SetApi:
    """A management API that says what a test sets. By worker: its consumers' connections."""

    def __init__(self) -> None:
        self.connections: dict[int, tuple[str, ...]] = {}
        self.ages: dict[str, float] = {}
        self.is_away = False
        self.asked: list[set[int]] = []

    async def consumers_of(
        self, queues: Collection[str], *, within_seconds: float
    ) -> Mapping[str, tuple[ConsumerFacts, ...] | None]:
        owners = {queue: NAMES.owner_of(queue) or 0 for queue in queues}
        self.asked.append(set(owners.values()))
        if self.is_away:
            raise Unavailable("management API", "no answer")
        return {
            queue: tuple(
                ConsumerFacts(queue=queue, tag=f"worker-{owner}", connection=name)
                for name in self.connections.get(owner, ())
            )
            for queue, owner in owners.items()
        }

    async def connection_ages(self, names: Collection[str], *, within_seconds: float) -> Mapping[str, float]:
        return {name: self.ages[name] for name in names if name in self.ages}


class RestartWorld(StaleWorld):
    def __init__(self, store: Database, host: Host) -> None:
        super().__init__(store, host)
        self.api, self.clock = SetApi(), 0.0
        self.connections = self.a_source()

    def a_source(self) -> ConnectionSource:
        return ConnectionSource(
            cast("Any", self.api), names=NAMES, own_tag_prefix="dlq-handler.", now=lambda: self.clock
        )

    def a_watcher(self, **changes: Any) -> Replica:
        return self.a_replica(connections=self.connections, **changes)

    def connect(self, worker_id: int, *names: str, age_seconds: float = 0.5) -> None:
        self.api.connections[worker_id] = names
        self.api.ages.update(dict.fromkeys(names, age_seconds))

    async def pass_seconds(self, seconds: float, ids: Collection[int] = ()) -> None:
        """As if so much time had passed since everything that is on record."""
        self.clock += seconds
        await self.looks_age(seconds)
        moments = (
            "checked_at", "observed_at", "absent_at", "found_at",
            "missing_since", "shared_from", "shared_since", "shared_until",
        )  # fmt: skip
        await self.host.session.execute(
            "UPDATE dlq_handler.worker_connection SET "
            + ", ".join(f"{one} = {one} - make_interval(secs => $1)" for one in moments),
            seconds,
        )
        for one in ids:
            row = await self.host.execution(one)
            age = await self.host.session.fetchval(
                "SELECT extract(epoch FROM now() - $1::timestamptz)::float8", row["updated"]
            )
            await self.make_old([one], age + seconds)

    async def a_run(self, worker_id: int, age_seconds: float = 10.0, **columns: Any) -> int:
        return await self.a_stale_one(status="running", worker=worker_id, age_seconds=age_seconds, **columns)


@pytest.fixture
def it(store: Database, host: Host) -> RestartWorld:
    return RestartWorld(store, host)


async def test_run_on_a_restarted_worker_is_abandoned_at_the_second_look_and_published(
    it: RestartWorld,
) -> None:
    worker = await it.a_worker()
    it.connect(worker, "old", age_seconds=500)
    run, replica = await it.a_run(worker), it.a_watcher()
    await replica.scan()
    await it.pass_seconds(MINUTE, [run])
    await replica.scan()
    await it.pass_seconds(10, [run])
    it.connect(worker, "new")

    await replica.scan()
    await replica.scan()
    assert await it.status(run) == "running", "two looks in a row are one look"
    await it.pass_seconds(30, [run])
    await replica.scan()

    row = await it.host.execution(run)
    assert row["status"] == "abandoned"
    assert row["result"]["error"].startswith(f"Worker restarted: worker {worker} was restarted")
    assert (row["result"]["abandoned_by"], row["result"]["original_status"]) == ("dlq_handler", "running")
    [kept] = await decisions_sql.of_execution(it.store, run)
    assert kept.outcome is StaleOutcome.ABANDONED
    assert kept.evidence["consumer_connection"] == "new"
    assert str(kept.evidence["connection_absent_at"]) < str(kept.evidence["connection_seen_at"])
    [event] = await it.host.outbox()
    assert json.loads(event["body"])["payload"]["status"] == "Abandoned"


async def test_run_of_the_process_that_consumes_is_left_alone_for_ever(it: RestartWorld) -> None:
    worker = await it.a_worker()
    it.connect(worker, "one", age_seconds=500)
    replica = it.a_watcher()
    seen = await it.a_run(worker, age_seconds=20)
    await replica.scan()
    later = await it.a_run(worker, age_seconds=0)
    for _ in range(5):
        await it.pass_seconds(50, [seen, later])
        await replica.scan()
    assert await it.changes() == []
    await it.pass_seconds(1000, [later])
    await replica.scan()
    assert await it.status(later) == "running", "known to be the present process's"


class Unclear(Enum):
    """Answers that do not name the one connection that consumes a worker's queue."""

    MISSING = auto()
    NO_CONSUMER = auto()
    SECOND_CONNECTION = auto()
    OTHERS = auto()


async def a_proven_run(it: RestartWorld, replica: Replica) -> tuple[int, int]:
    """A worker, and a run that its present process began long ago: far beyond its limit."""
    worker = await it.a_worker()
    it.connect(worker, "one", age_seconds=500)
    await it.a_run(worker)
    await replica.scan()
    run = await it.a_run(worker, age_seconds=0)
    it.api.ages["one"] += 1000
    await it.pass_seconds(1000, [run])
    await replica.scan()
    assert await it.status(run) == "running"
    return worker, run


def answer(it: RestartWorld, worker: int, unclear: Unclear | None) -> None:
    """None: the connection of the proven run, alone."""
    it.api.is_away = unclear is Unclear.MISSING
    answers: dict[Unclear | None, tuple[str, ...]] = {
        Unclear.NO_CONSUMER: (),
        Unclear.SECOND_CONNECTION: ("one", "two"),
        Unclear.OTHERS: ("two", "three"),
    }
    it.api.connections[worker] = answers.get(unclear, ("one",))


@pytest.mark.parametrize("unclear", Unclear)
async def test_unclear_answers_do_not_end_a_run_of_the_process_that_consumes(
    it: RestartWorld, unclear: Unclear
) -> None:
    replica = it.a_watcher()
    worker, run = await a_proven_run(it, replica)
    for _ in range(3):
        for seconds in (10, 50):
            answer(it, worker, unclear)
            await it.pass_seconds(seconds, [run])
            await replica.scan()
            assert await it.status(run) == "running"
        answer(it, worker, None)
        it.clock += PAUSE_SECONDS
        await it.pass_seconds(10, [run])
        it.api.ages["one"] += 70
        await replica.scan()
        assert await it.status(run) == "running"
    await it.pass_seconds(5000, [run])
    await replica.scan()
    assert await it.status(run) == "running", "still proven"


@pytest.mark.parametrize("unclear", [Unclear.MISSING, Unclear.NO_CONSUMER, Unclear.OTHERS])
async def test_run_whose_connection_is_not_found_for_two_minutes_ends_at_its_limit(
    it: RestartWorld, unclear: Unclear
) -> None:
    replica = it.a_watcher()
    worker, run = await a_proven_run(it, replica)
    answer(it, worker, unclear)
    for _ in range(2):
        await replica.scan()
        assert await it.status(run) == "running"
        await it.pass_seconds(KEPT_SECONDS / 2, [run])
    await replica.scan()
    assert await it.status(run) == "abandoned"


async def test_run_that_began_beside_a_second_connection_ends_at_its_limit(it: RestartWorld) -> None:
    replica = it.a_watcher()
    worker, proven = await a_proven_run(it, replica)
    beside = await it.a_run(worker, age_seconds=0)
    answer(it, worker, Unclear.SECOND_CONNECTION)
    await replica.scan()
    answer(it, worker, None)
    await it.pass_seconds(300, [proven, beside])
    await replica.scan()
    assert await it.status(beside) == "running"
    await it.pass_seconds(MINUTE, [proven, beside])
    await replica.scan()
    assert (await it.status(proven), await it.status(beside)) == ("running", "abandoned")


async def test_run_of_an_unknown_process_ends_at_its_limit_at_the_second_look_only(it: RestartWorld) -> None:
    worker = await it.a_worker()
    it.connect(worker, "one", age_seconds=500)
    run, replica = await it.a_run(worker, age_seconds=1000), it.a_watcher()
    await replica.scan()
    await replica.scan()
    assert await it.status(run) == "running"
    await it.pass_seconds(30, [run])
    await replica.scan()
    assert await it.status(run) == "abandoned"


async def test_without_the_setting_no_connection_is_asked_for(it: RestartWorld) -> None:
    worker = await it.a_worker()
    run, replica = await it.a_run(worker, age_seconds=9000), it.a_replica()
    await replica.scan()
    await it.pass_seconds(MINUTE)
    await replica.scan()
    assert await it.status(run) == "running"
    assert it.api.asked == []


async def test_another_leader_goes_on_where_the_first_ended(it: RestartWorld) -> None:
    worker = await it.a_worker()
    it.connect(worker, "old", age_seconds=500)
    run, one, two = await it.a_run(worker), it.a_watcher(name="one"), it.a_watcher(name="two")
    await one.scan()
    await it.pass_seconds(MINUTE, [run])
    await one.scan()
    await it.host.session.execute("UPDATE dlq_handler.lease SET until = now() - interval '1 s'")
    await it.pass_seconds(10, [run])
    it.connect(worker, "new")
    await two.scan()
    await it.pass_seconds(30, [run])
    await two.scan()
    assert await it.status(run) == "abandoned"


async def test_leader_that_lost_its_lease_while_it_asked_keeps_no_look(it: RestartWorld) -> None:
    worker = await it.a_worker()
    it.connect(worker, "old", age_seconds=500)
    await it.a_run(worker)
    one, two = it.a_watcher(name="one"), it.a_watcher(name="two")
    await one.leadership.tick()
    await it.host.session.execute("UPDATE dlq_handler.lease SET until = now() - interval '1 s'")
    await two.leadership.tick()
    await one.monitor.tick()
    assert await it.host.session.fetch("SELECT * FROM dlq_handler.worker_connection") == []


async def test_run_that_may_be_of_either_process_ends_at_its_limit(it: RestartWorld) -> None:
    worker = await it.a_worker()
    it.connect(worker, "old", age_seconds=500)
    before, replica = await it.a_run(worker, age_seconds=100), it.a_watcher()
    await replica.scan()
    between = await it.a_run(worker, age_seconds=0)
    it.connect(worker, "new")
    await replica.scan()
    await it.pass_seconds(31, [before, between])
    await replica.scan()
    assert (await it.status(before), await it.status(between)) == ("abandoned", "running")
    await it.pass_seconds(300, [between])
    await replica.scan()
    assert await it.status(between) == "running"
    await it.pass_seconds(31, [between])
    await replica.scan()
    assert await it.status(between) == "abandoned"
    assert (await it.host.execution(between))["result"]["error"].startswith("Execution timeout: ")


@pytest.mark.parametrize("connections", [(), ("old", "new"), None])
async def test_while_nothing_is_known_only_the_limit_counts(
    it: RestartWorld, connections: tuple[str, ...] | None
) -> None:
    """No consumer, the old connection half open beside the new one, no management API."""
    worker = await it.a_worker()
    it.connect(worker, "old", age_seconds=500)
    run, replica = await it.a_run(worker), it.a_watcher()
    await replica.scan()
    await it.pass_seconds(MINUTE, [run])
    if connections is None:
        it.api.is_away = True
    else:
        it.connect(worker, *connections)
    for _ in range(4):
        await replica.scan()
        await it.pass_seconds(MINUTE, [run])
    assert await it.status(run) == "running"
    await it.pass_seconds(MINUTE, [run])
    await replica.scan()
    assert await it.status(run) == "abandoned"


async def test_own_limit_of_a_task_is_read_from_its_row(it: RestartWorld) -> None:
    worker = await it.a_worker()
    ids = {
        text: await it.a_run(worker, age_seconds=200)
        for text in (
            '{"timeout_seconds": 10}',
            '{"timeout_seconds": 900.5}',
            "null",
            "{}",
            '{"timeout_seconds": 1e400}',
        )
    }
    ids |= {
        text: await it.a_run(worker, age_seconds=400)
        for text in (
            '{"timeout_seconds": -1}',
            '{"timeout_seconds": "9"}',
            '{"timeout_seconds": null}',
            "[1]",
            "7",
        )
    }
    for text, one in ids.items():
        await it.host.session.execute(
            "UPDATE execution SET workflow_task = CAST(CAST($1 AS text) AS jsonb) WHERE id = $2", text, one
        )
        await it.make_old([one], 200 if text in list(ids)[:5] else 400)
    async with it.store.transaction() as tx:
        limits = await stale_sql.own_run_limits(tx, ids.values())
    assert limits == {
        ids['{"timeout_seconds": 10}']: 10,
        ids['{"timeout_seconds": 900.5}']: 900.5,
        ids['{"timeout_seconds": 1e400}']: 1e9,
    }
    replica = it.a_watcher()
    await replica.scan()
    await it.pass_seconds(30)
    await replica.scan()
    ended = {text for text, one in ids.items() if await it.status(one) == "abandoned"}
    assert ended == {
        '{"timeout_seconds": 10}', '{"timeout_seconds": -1}', '{"timeout_seconds": "9"}',
        '{"timeout_seconds": null}', "[1]", "7",
    }  # fmt: skip


async def test_only_workers_that_run_something_and_report_are_asked_about(it: RestartWorld) -> None:
    busy, idle, dead = await it.a_worker(), await it.a_worker(), await it.a_dead_worker()
    await it.a_run(busy)
    await it.a_run(dead)
    await it.a_stale_one(worker=idle, age_seconds=1)
    await it.a_watcher().scan()
    assert it.api.asked == [{busy}]


async def test_of_a_large_fleet_each_scan_asks_about_some_the_longest_unasked_first(
    it: RestartWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MOST_AT_ONCE", 2)
    workers = [await it.a_worker() for _ in range(3)]
    for one in workers:
        await it.a_run(one)
    replica = it.a_watcher()
    for _ in range(3):
        await replica.scan()
    assert it.api.asked == [set(workers[:2]), {workers[2], workers[0]}, {workers[1], workers[0]}]


@pytest.mark.parametrize("is_away", [True, False])
async def test_each_worker_of_a_large_fleet_has_its_turn_without_a_clear_answer_too(
    it: RestartWorld, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """The management API is away, or each worker has two connections."""
    monkeypatch.setattr(processes, "MOST_AT_ONCE", 2)
    workers = [await it.a_worker() for _ in range(5)]
    for one in workers:
        it.connect(one, f"{one} one", f"{one} two")
    young = [await it.a_run(one) for one in workers[:2]]
    old = [await it.a_run(one, age_seconds=1000) for one in workers[2:]]
    it.api.is_away, replica = is_away, it.a_watcher()
    for _ in range(3):
        await replica.scan()
    await it.pass_seconds(30, [*young, *old])
    for _ in range(3):
        await replica.scan()
    assert await it.statuses(old) == {"abandoned"}
    assert await it.statuses(young) == {"running"}


async def test_api_that_is_away_is_left_alone_for_a_minute(it: RestartWorld) -> None:
    await it.a_run(await it.a_worker())
    it.api.is_away, replica = True, it.a_watcher()
    for _ in range(3):
        await replica.scan()
    assert len(it.api.asked) == 1
    it.clock += PAUSE_SECONDS
    await replica.scan()
    assert len(it.api.asked) == 2


async def test_shadow_has_looks_of_its_own_and_ends_nothing(it: RestartWorld) -> None:
    worker = await it.a_worker()
    it.connect(worker, "old", age_seconds=500)
    run, shadow = await it.a_run(worker, age_seconds=100), it.a_watcher(is_shadow=True)
    await shadow.scan()
    await it.pass_seconds(10, [run])
    it.connect(worker, "new")
    await shadow.scan()
    await it.pass_seconds(30, [run])
    await shadow.scan()
    [would_be] = await decisions_sql.of_execution(it.store, run)
    assert (would_be.outcome, would_be.is_shadow) == (StaleOutcome.ABANDONED, True)
    assert await it.status(run) == "running"
    async with it.store.transaction() as tx:
        assert await connections_sql.read_connections(tx, [worker], is_shadow=False) == {}


async def test_looks_of_workers_that_run_nothing_any_more_are_deleted(it: RestartWorld) -> None:
    worker = await it.a_worker()
    it.connect(worker, "old")
    await it.a_run(worker)
    await it.a_watcher().scan()
    assert await connections_sql.delete_old_connections(it.store, older_than_seconds=3600) == 0
    await it.pass_seconds(3601)
    assert await connections_sql.delete_old_connections(it.store, older_than_seconds=3600) == 1


async def test_explain_says_what_the_next_scan_would_do_and_keeps_nothing(it: RestartWorld) -> None:
    worker = await it.a_worker()
    it.connect(worker, "old", age_seconds=500)
    run, replica = await it.a_run(worker, age_seconds=100), it.a_watcher()
    await replica.scan()
    await it.pass_seconds(10, [run])
    it.connect(worker, "new")
    await replica.scan()
    await it.pass_seconds(30, [run])
    case = await observe_case(it.store, it.queue_observer, LIMITS, 3600, run, connections=it.a_source())
    assert case is not None
    assert isinstance(decide_stale(case), End)
    it.connect(worker, "newer")
    case = await observe_case(it.store, it.queue_observer, LIMITS, 3600, run, connections=it.a_source())
    assert case is not None
    assert isinstance(decide_stale(case), Wait)
    async with it.store.transaction() as tx:
        kept = await connections_sql.read_connections(tx, [worker], is_shadow=False)
    assert kept[worker].connection == "new"
