"""One leader at a time: taken, renewed, lost, given up."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import leadership as module
from dlq_handler.database import lease_sql, migrate
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import LEASE_SECONDS, Leadership, LeaseLost
from dlq_handler.errors import Contended, Unavailable
from dlq_handler.metrics import Metrics
from dlq_handler.rooms import new_metrics
from dlq_handler.settings import load
from sandbox.servers.ports import free_port
from tests.support.driven import driven_sidecar
from tests.support.eventually import eventually
from tests.support.host_tables import Host


@pytest.fixture
async def store(database: str) -> AsyncIterator[Database]:
    store = Database(database, lock_timeout_ms=100)
    await migrate.upgrade(store)
    yield store
    await store.dispose()


def a_replica(store: Database, name: str, metrics: Metrics | None = None, **options: Any) -> Leadership:
    return Leadership(store, "leader", holder=name, metrics=metrics or new_metrics(), **options)


def shown(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("dlq_handler_leader")


def leads(replica: Leadership) -> bool:
    return replica.is_leader


async def end_lease(store: Database) -> None:
    async with store.transaction() as tx:
        await tx.run("UPDATE own.lease SET until = clock_timestamp() - interval '1 s'")


async def test_of_two_replicas_one_leads(store: Database) -> None:
    one, two = a_replica(store, "one"), a_replica(store, "two")
    async with asyncio.TaskGroup() as both:
        both.create_task(one.tick())
        both.create_task(two.tick())
    assert {leads(one), leads(two)} == {True, False}
    for _ in range(3):
        before = leads(one)
        await two.tick()
        await one.tick()
        assert (leads(one), leads(two)) == (before, not before)


async def test_the_lease_lasts_30_seconds_and_is_renewed_every_10_whatever_the_intervals(
    vhost: str, database: str, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the death of a leader another replica leads within 40 s."""
    environment = {
        "ATTUNE__MESSAGE_QUEUE__URL": vhost,
        "ATTUNE__DATABASE__URL": database,
        "ATTUNE__EXECUTOR__TIMEOUT_CHECK_INTERVAL": "3600",
        "ATTUNE__DLQ_HANDLER__MONITOR__INTERVAL_SECONDS": "600",
        "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(free_port()),
        "ATTUNE__DLQ_HANDLER__UI__PORT": str(free_port()),
    }
    async with driven_sidecar(load(None, environment).settings, monkeypatch) as replica:
        renewed_every, renew = replica.loops["leadership"]
        await renew()
        lasts = await host.session.fetchval(
            "SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM dlq_handler.lease"
        )
    assert renewed_every == 10
    assert 20 < lasts <= 30


async def test_a_lease_that_ended_is_taken_by_the_other_replica_which_is_woken(store: Database) -> None:
    metrics, woken = new_metrics(), asyncio.Event()
    one, two = a_replica(store, "one"), a_replica(store, "two", metrics)
    two.wake_when_taken(woken)
    await one.tick()
    await two.tick()
    assert (woken.is_set(), shown(metrics)) == (False, 0)
    await end_lease(store)
    with capture_logs() as logged:
        await two.tick()
        await two.tick()
    assert leads(two)
    assert (woken.is_set(), shown(metrics)) == (True, 1)
    assert [line["event"] for line in logged] == ["leadership.acquired"]
    await one.tick()
    assert not leads(one)


async def test_fence_of_a_leader_that_was_replaced_lets_nothing_through(store: Database) -> None:
    metrics = new_metrics()
    one, two = a_replica(store, "one", metrics), a_replica(store, "two")
    await one.tick()
    await end_lease(store)
    await two.tick()
    assert leads(one), "it does not know yet"

    async def write() -> None:
        async with store.transaction() as tx:
            await tx.run("INSERT INTO own.change_count VALUES (now(), 1)")
            await one.fence(tx)

    with capture_logs() as logged, pytest.raises(LeaseLost):
        await write()
    assert not leads(one)
    assert shown(metrics) == 0
    assert [line["event"] for line in logged] == ["leadership.ended"]
    async with store.transaction() as tx:
        assert await tx.rows("SELECT * FROM own.change_count") == []


async def test_no_replica_takes_the_lease_while_a_fenced_transaction_is_open(store: Database) -> None:
    one, two = a_replica(store, "one"), a_replica(store, "two")
    await one.tick()
    await end_lease(store)
    async with store.transaction() as tx:
        await one.fence(tx)
        with pytest.raises(Contended):
            await lease_sql.take(store, "leader", holder="two", seconds=30)
        await two.tick()
        assert not leads(two)
    await two.tick()
    assert not leads(two), "the fence has renewed it"


async def test_fence_renews_a_lease_that_ended_and_was_not_taken(store: Database) -> None:
    one = a_replica(store, "one")
    await one.tick()
    await end_lease(store)
    async with store.transaction() as tx:
        await one.fence(tx)
    assert leads(one)


async def test_leader_that_cannot_renew_stops_believing_in_it(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = new_metrics()
    one = a_replica(store, "one", metrics)
    await one.tick()

    async def away(*_: object, **__: object) -> bool:
        raise Unavailable("database", "away, on purpose")

    monkeypatch.setattr(lease_sql, "take", away)
    now = monotonic_seconds()
    monkeypatch.setattr(module, "monotonic_seconds", lambda: now + LEASE_SECONDS - 1)
    with pytest.raises(Unavailable):
        await one.tick()
    assert (leads(one), shown(metrics)) == (True, 1)
    monkeypatch.setattr(module, "monotonic_seconds", lambda: now + LEASE_SECONDS)
    # Also without a tick, as none comes to its end while the database hangs.
    assert shown(metrics) == 0
    with capture_logs() as logged, pytest.raises(Unavailable):
        await one.tick()
    assert not leads(one)
    assert [line["event"] for line in logged] == ["leadership.ended"]


async def test_replica_that_ends_leaves_the_lease_to_the_next_one(store: Database) -> None:
    one, two = a_replica(store, "one", lease_seconds=3600, renew_seconds=0.01), a_replica(store, "two")
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(one.run(stop))
        await eventually(lambda: leads(one))
        stop.set()
    assert not leads(one)
    await two.tick()
    assert leads(two)


async def test_a_replica_that_may_not_lead_leaves_the_lease_to_another(store: Database) -> None:
    may_lead = True
    one = Leadership(store, "leader", holder="one", metrics=new_metrics(), may_lead=lambda: may_lead)
    two = a_replica(store, "two")
    await one.tick()
    await two.tick()
    assert (leads(one), leads(two)) == (True, False)
    may_lead = False
    await one.tick()
    await two.tick()
    assert (leads(one), leads(two)) == (False, True)
