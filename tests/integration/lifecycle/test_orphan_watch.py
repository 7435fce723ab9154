"""Orphaned queues on real servers: which are found, by the management API and without it, and which are retired."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.errors import GateClosed, Unavailable
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle import flows_sql, orphan_watch
from dlq_handler.lifecycle.flow import FlowKind, FlowStatus
from dlq_handler.lifecycle.orphan_watch import WANTED_BY, OrphanFinder, OrphanList, OrphanWatch
from dlq_handler.lifecycle.wishes import retirement_id
from sandbox.attune.worker import StockWorker
from tests.integration.topology.broker_side import delete_queue
from tests.integration.workers.conftest import AVAILABILITY, Fleet, Watchpost

NAMES = WorkerQueueNames()
DAY = 86_400.0
SURE = float("inf")


async def no_api() -> Collection[str]:
    raise Unavailable("management API", "there is none in these tests")


def finder_of(post: Watchpost, api: ManagementApi | None, *, asks_all_once: bool = True) -> OrphanFinder:
    names = no_api if api is None else api.queue_names
    counted_by = api or cast("Any", SimpleNamespace(queue_names=no_api))
    return OrphanFinder(
        post.database,
        QueueCounter(post.admin, api=counted_by, asks_all_once=asks_all_once),
        names,
        names=NAMES,
        availability=AVAILABILITY,
        after_seconds=DAY,
    )


def why_not(found: OrphanList) -> dict[int, tuple[str, ...]]:
    return {one.worker_id: one.why_not for one in found.workers}


class Workers:
    """Each with its three queues."""

    def __init__(self, post: Watchpost, fleet: Fleet) -> None:
        self._post, self._fleet = post, fleet

    async def silent(self, name: str) -> StockWorker:
        return await self._fleet.worker(name, heartbeat_age_seconds=2 * DAY)

    async def deleted(self, name: str) -> StockWorker:
        worker = await self._fleet.worker(name)
        await self._post.sql("DELETE FROM worker WHERE id = :id RETURNING id", id=worker.id)
        return worker


@pytest.fixture
def workers(post: Watchpost, fleet: Fleet) -> Workers:
    return Workers(post, fleet)


async def test_queues_of_workers_that_are_gone_and_needed_by_nothing_are_orphans(
    post: Watchpost, fleet: Fleet, workers: Workers, api: ManagementApi
) -> None:
    silent, deleted = await workers.silent("silent"), await workers.deleted("deleted")
    alive = await fleet.worker("alive")
    busy, consuming = await workers.silent("busy"), await workers.silent("consuming")
    await fleet.dispatch(busy, 1)
    await consuming.hang()

    found = await finder_of(post, api).find(link_age_seconds=SURE)

    assert {one.worker_id for one in found.orphans} == {silent.id, deleted.id}
    assert found.limits == ()
    reasons = why_not(found)
    assert reasons[alive.id] == ("the last heartbeat of the worker is no more than 24 h old",)
    assert reasons[busy.id] == (f"worker {busy.id} has executions that are not final",)
    assert [text.partition(" has ")[2] for text in reasons[consuming.id]] == ["1 consumer(s)"] * len(
        reasons[consuming.id]
    )
    [orphan] = [one for one in found.workers if one.worker_id == silent.id]
    assert orphan.queue_names == tuple(
        f"worker.{silent.id}.{kind}" for kind in ("cancel", "executions", "packs")
    )
    assert orphan.ready == 0


async def test_queue_that_is_gone_is_not_in_the_list(
    post: Watchpost, workers: Workers, api: ManagementApi
) -> None:
    silent = await workers.silent("silent")
    for kind in ("cancel", "executions", "packs"):
        await delete_queue(post.admin, f"worker.{silent.id}.{kind}")

    assert (await finder_of(post, api).find(link_age_seconds=SURE)).workers == ()


async def test_without_the_management_api_workers_of_rows_and_records_are_checked(
    post: Watchpost, workers: Workers
) -> None:
    silent, deleted, forgotten = (
        await workers.silent("silent"),
        await workers.deleted("deleted"),
        await workers.deleted("forgotten"),
    )
    await post.sql(
        """
        INSERT INTO own.letter_group
        VALUES ('0123456789', 'rescued', 'rescued', 'q', NULL, :id, now(), now(), 1, 1, '{}') RETURNING id
        """,
        id=deleted.id,
    )

    found = await finder_of(post, None).find(link_age_seconds=SURE)

    assert {one.worker_id for one in found.orphans} == {silent.id, deleted.id}
    assert forgotten.id not in why_not(found)
    [limit] = found.limits
    assert "AMQP cannot list queues" in limit
    assert "dlq_handler.broker.management_url" in limit


async def test_queue_that_was_not_asked_about_is_no_orphan_and_is_counted_in_the_limits(
    post: Watchpost, workers: Workers
) -> None:
    """In the background few questions may be refused, because each leaves error lines in the broker's log."""
    silent = await workers.silent("silent")
    await delete_queue(post.admin, f"worker.{silent.id}.executions")

    found = await finder_of(post, None, asks_all_once=False).find(link_age_seconds=SURE)

    assert found.orphans == ()
    assert any("queue(s) may exist" in limit for limit in found.limits)


class Watch:
    def __init__(self, post: Watchpost, api: ManagementApi) -> None:
        self.post = post
        self.watch = OrphanWatch(post.database, finder_of(post, api), post.leadership, post.gate, names=NAMES)

    async def retirements(self) -> list[tuple[str, FlowKind, FlowStatus, str]]:
        flows = await flows_sql.list_flows(self.post.database)
        return [(one.id, one.kind, one.status, one.wanted_by) for one in flows]


@pytest.fixture
def watch(post: Watchpost, api: ManagementApi) -> Watch:
    return Watch(post, api)


def wanted(worker_id: int) -> tuple[str, FlowKind, FlowStatus, str]:
    return retirement_id(worker_id), FlowKind.RETIREMENT, FlowStatus.STOPPING, WANTED_BY


async def test_watch_asks_once_for_the_stop_of_each_orphan(
    watch: Watch, workers: Workers, fleet: Fleet
) -> None:
    deleted = await workers.deleted("deleted")
    await fleet.worker("alive")

    await watch.watch.tick()
    assert await watch.retirements() == [wanted(deleted.id)]

    await watch.watch.tick()
    assert await watch.retirements() == [wanted(deleted.id)]
    [flow] = await flows_sql.list_flows(watch.post.database)
    assert flow.comment == "the worker has no row"
    assert flow.version == 1


async def test_silent_worker_is_retired_only_when_its_heartbeat_could_be_read_for_long_enough(
    watch: Watch, workers: Workers
) -> None:
    """The link of this test is young."""
    await workers.silent("silent")

    await watch.watch.tick()

    assert await watch.retirements() == []


async def test_replica_that_does_not_lead_retires_nothing(watch: Watch, workers: Workers) -> None:
    await workers.deleted("deleted")
    await watch.post.leadership._give_up()

    await watch.watch.tick()

    assert await watch.retirements() == []


async def test_nothing_is_retired_while_the_safety_gate_is_closed(
    watch: Watch, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a wrong database no worker has a row."""
    await workers.deleted("deleted")

    def closed() -> None:
        raise GateClosed("a wrong database")

    monkeypatch.setattr(watch.post.gate, "check", closed)
    with pytest.raises(GateClosed):
        await watch.watch.tick()

    assert await watch.retirements() == []


async def test_few_workers_are_retired_at_a_time(
    watch: Watch, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphan_watch, "MOST_AT_ONCE", 1)
    first, second = await workers.deleted("first"), await workers.deleted("second")

    await watch.watch.tick()
    await watch.watch.tick()
    assert await watch.retirements() == [wanted(first.id)]

    await watch.post.sql("UPDATE own.flow SET status = 'stopped' RETURNING id")
    for kind in ("cancel", "executions", "packs"):
        await delete_queue(watch.post.admin, f"worker.{first.id}.{kind}")
    await watch.watch.tick()
    assert wanted(second.id) in await watch.retirements()


async def test_queue_that_a_stop_could_not_delete_is_left_to_that_stop(
    watch: Watch, workers: Workers
) -> None:
    deleted = await workers.deleted("deleted")
    await watch.watch.tick()
    await watch.post.sql(
        "UPDATE own.flow SET status = 'stopped', leaked = jsonb_build_array(CAST(:name AS text)) RETURNING id",
        name=f"worker.{deleted.id}.packs",
    )

    await watch.watch.tick()

    [(_, _, status, _)] = await watch.retirements()
    assert status is FlowStatus.STOPPED
