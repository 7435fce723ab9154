"""The watch reports the availability of workers, and asks the broker only about those that matter."""

import math

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from dlq_handler.errors import Unavailable
from tests.integration.workers.conftest import CONFIRM_AFTER_SECONDS, Fleet, Watchpost

DAYS = 3 * 86_400.0


def gauge(post: Watchpost, name: str, **labels: str) -> float:
    registry: CollectorRegistry = post.metrics.registry
    value = registry.get_sample_value(f"dlq_handler_{name}", labels)
    assert value is not None
    return value


def workers(post: Watchpost) -> dict[str, float]:
    kinds = ("available", "late", "unavailable", "unknown")
    return {kind: gauge(post, "workers", availability=kind) for kind in kinds}


async def test_workers_are_counted_by_availability(post: Watchpost, fleet: Fleet) -> None:
    for name, age in (("a", 0.0), ("b", 0.0), ("c", 60.0), ("d", 600.0)):
        await fleet.worker(name, heartbeat_age_seconds=age)
    assert math.isnan(workers(post)["available"])

    await post.watch.tick()
    assert workers(post) == {"available": 2, "late": 1, "unavailable": 1, "unknown": 0}

    post.watched_seconds = 10.0
    await post.watch.tick()
    assert workers(post) == {"available": 2, "late": 1, "unavailable": 0, "unknown": 1}


async def test_rows_of_workers_that_are_history_are_in_no_count(post: Watchpost, fleet: Fleet) -> None:
    await fleet.worker("alive")
    for name in ("replaced", "replaced-too"):
        await fleet.worker(name, heartbeat_age_seconds=DAYS)
    await post.sql("UPDATE worker SET last_heartbeat = NULL WHERE name = 'replaced-too'")

    await post.watch.tick()

    assert workers(post) == {"available": 1, "late": 0, "unavailable": 0, "unknown": 0}
    assert post.watch.availabilities is not None
    assert len(post.watch.availabilities) == 1

    await post.sql("UPDATE worker SET last_heartbeat = now() - interval '2 days' WHERE name = 'alive'")
    await post.watch.tick()

    assert workers(post)["unavailable"] == 2, "no worker is left, and that stays so"


async def test_database_that_is_away_makes_every_number_unknown(
    post: Watchpost, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.worker("a", heartbeat_age_seconds=600)
    await post.confirm_absences()
    assert post.watch.unavailable

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("database", "away")

    monkeypatch.setattr("dlq_handler.workers.watch.read_fleet", away)
    with pytest.raises(Unavailable):
        await post.watch.tick()

    assert all(math.isnan(count) for count in workers(post).values())
    assert math.isnan(gauge(post, "worker_queues_unattended"))
    assert post.watch.unavailable == {}


async def test_only_changes_are_logged(post: Watchpost, fleet: Fleet) -> None:
    worker = await fleet.worker("comes-and-goes")
    await fleet.worker("long-dead", heartbeat_age_seconds=DAYS)

    with capture_logs() as logs:
        await post.watch.tick()
        await post.watch.tick()
    assert logs == []

    await worker.heartbeat(age_seconds=600)
    post.watched_seconds = 10.0
    with capture_logs() as logs:
        await post.watch.tick()
    assert logs == [], "unknown is no change"

    post.watched_seconds = 3600.0
    with capture_logs() as logs:
        await post.watch.tick()
        await post.watch.tick()
    assert [(one["event"], one["worker_ids"]) for one in logs] == [("worker.unavailable", [worker.id])]

    await worker.heartbeat()
    with capture_logs() as logs:
        await post.watch.tick()
        await post.watch.tick()
    assert [(one["event"], one["worker_ids"]) for one in logs] == [("worker.returned", [worker.id])]


async def test_queue_with_messages_and_without_a_consumer_is_unattended(
    post: Watchpost, fleet: Fleet
) -> None:
    idle, busy, dead = [await fleet.worker(name) for name in ("idle", "busy", "dead")]
    await busy.hang()
    await fleet.dispatch(busy, 40)
    await fleet.dispatch(dead, 2)

    await post.watch.tick()

    assert post.watch.unattended == {dead.id}
    assert gauge(post, "worker_queues_unattended") == 1
    assert idle.id not in post.watch.unattended


async def test_long_dead_workers_cost_no_question_unless_something_waits_for_them(
    post: Watchpost, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await fleet.worker("live")
    dead = await fleet.worker("dead", heartbeat_age_seconds=DAYS)
    asked: list[list[int]] = []
    count = post.queue_observer.count

    async def spy(worker_ids: list[int]) -> object:
        asked.append(sorted(worker_ids))
        return await count(worker_ids)

    monkeypatch.setattr(post.queue_observer, "count", spy)
    await post.watch.tick()
    await fleet.dispatch(dead, 1)
    post.clock += 60
    await post.watch.tick()

    assert asked == [[live.id], [live.id, dead.id]]
    assert post.watch.unattended == {dead.id}


async def test_absence_is_confirmed_by_a_second_look_with_the_same_heartbeat(
    post: Watchpost, fleet: Fleet
) -> None:
    worker = await fleet.worker("dead", heartbeat_age_seconds=600)
    await post.watch.tick()
    post.clock += CONFIRM_AFTER_SECONDS - 1
    await post.watch.tick()
    assert post.watch.unavailable == {}

    await worker.heartbeat(age_seconds=400)
    post.clock += 1
    await post.watch.tick()
    assert post.watch.unavailable == {}, "it reported between the looks, however long ago that is by now"

    post.clock += CONFIRM_AFTER_SECONDS
    await post.watch.tick()
    assert set(post.watch.unavailable) == {worker.id}


async def test_break_in_the_view_restarts_the_observations(post: Watchpost, fleet: Fleet) -> None:
    await fleet.worker("dead", heartbeat_age_seconds=600)
    await post.watch.tick()
    post.clock += CONFIRM_AFTER_SECONDS
    post.watched_seconds = 10.0
    await post.watch.tick()
    post.watched_seconds = 3600.0
    await post.watch.tick()

    assert post.watch.unavailable == {}
