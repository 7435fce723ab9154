"""The keeper, tick by tick."""

import asyncio
from typing import Any, cast
from urllib.parse import quote

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.errors import Unavailable
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.keeper import TopologyKeeper
from dlq_handler.topology.options import TopologyOptions
from sandbox.servers import RabbitMQ
from tests.integration.topology.broker_side import declare_queue, delete_queue, keys_bound
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy


class Workers:
    """The worker table, as the keeper sees it."""

    def __init__(self, *ids: int) -> None:
        self.ids = frozenset(ids)
        self.is_away = False

    async def worker_ids(self) -> frozenset[int]:
        if self.is_away:
            raise Unavailable("database", "away")
        return self.ids

    def wake_when_changed(self, _: asyncio.Event) -> None:
        """The tests tick by themselves."""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_keeper(link: AdminConnection, workers: Workers, clock: Clock | None = None) -> TopologyKeeper:
    return TopologyKeeper(
        link,
        Blueprint(),
        cast("Any", workers),
        TopologyOptions(),
        interval_seconds=0.02,
        now=clock or Clock(),
    )


def keys(*workers: int) -> set[str]:
    return {"#", *(f"execution.dispatch.worker.{worker}" for worker in workers)}


async def test_a_new_worker_is_bound_by_the_next_tick_also_one_with_a_lower_id(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    workers = Workers(5)
    keeper = a_keeper(link, workers)
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys(5)

    workers.ids = frozenset({3, 5, 9})
    await keeper.tick()

    assert await keys_bound(api, STOCK_QUEUE) == keys(3, 5, 9)
    assert len(keeper.bound_workers) == 3


async def test_a_worker_is_unbound_only_when_its_row_and_its_queue_are_deleted(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    workers, clock = Workers(1, 2), Clock()
    keeper = a_keeper(link, workers, clock)
    await declare_queue(link, "worker.2.executions")
    await delete_queue(link, "worker.1.executions")
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys(1, 2)

    workers.ids = frozenset()
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys(2)

    await delete_queue(link, "worker.2.executions")
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys(2)

    clock.now += 600
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys()
    assert len(keeper.bound_workers) == 0


async def test_a_worker_that_comes_back_keeps_its_binding(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    workers = Workers(1)
    keeper = a_keeper(link, workers)
    await keeper.tick()
    workers.ids = frozenset()
    await keeper.tick()

    workers.ids = frozenset({1})
    await keeper.tick()

    assert await keys_bound(api, STOCK_QUEUE) == keys(1)


async def test_deleted_objects_are_restored_on_request_and_at_the_interval(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    clock = Clock()
    keeper = a_keeper(link, Workers(1), clock)
    await keeper.tick()

    await delete_queue(link, STOCK_QUEUE)
    await keeper.tick()
    assert STOCK_QUEUE not in (await api.snapshot()).queues

    keeper.reapply_now()
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys(1)

    await delete_queue(link, STOCK_QUEUE)
    clock.now += 599
    await keeper.tick()
    assert STOCK_QUEUE not in (await api.snapshot()).queues

    clock.now += 1
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys(1)


async def test_a_dead_letter_exchange_deleted_alone_is_restored_by_the_next_tick(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    keeper = a_keeper(link, Workers(1))
    await keeper.tick()
    async with link.channel("delete the exchange") as channel:
        await channel.exchange_delete("attune.dlx")
    assert "attune.dlx" not in (await api.snapshot()).exchanges

    await keeper.tick()

    assert await keys_bound(api, STOCK_QUEUE) == keys(1)


async def test_a_failed_pass_is_tried_again(stock: None, link: AdminConnection, api: ManagementApi) -> None:
    workers = Workers(1)
    keeper = a_keeper(link, workers)
    await keeper.tick()
    await delete_queue(link, STOCK_QUEUE)
    workers.ids = frozenset({1, 2})

    with pytest.raises(Unavailable, match=r"no queue 'attune\.dlx\.queue'"):
        await keeper.tick()
    assert len(keeper.bound_workers) == 1

    keeper.reapply_now()
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys(1, 2)


@pytest.mark.usefixtures("stock")
async def test_a_wiped_vhost_is_whole_again_after_the_reconnect_even_with_the_database_away(
    rabbitmq: RabbitMQ, vhost_name: str, link: AdminConnection, api: ManagementApi
) -> None:
    workers = Workers(1, 2)
    keeper = a_keeper(link, workers)
    await keeper.tick()

    await rabbitmq.ask("DELETE", f"vhosts/{quote(vhost_name, safe='')}")
    await rabbitmq.create_vhost(vhost_name)
    workers.is_away = True

    async def is_restored() -> bool:
        with pytest.raises(Unavailable):
            await keeper.tick()
        return await keys_bound(api, STOCK_QUEUE) == keys(1, 2)

    await eventually(is_restored)


async def test_a_database_that_never_answered_does_not_keep_the_queue_from_being_made(
    link: AdminConnection, api: ManagementApi
) -> None:
    workers = Workers(1)
    workers.is_away = True
    keeper = a_keeper(link, workers)

    with pytest.raises(Unavailable, match="database"):
        await keeper.tick()

    assert await keys_bound(api, STOCK_QUEUE) == {"#"}
    workers.is_away = False
    await keeper.tick()
    assert await keys_bound(api, STOCK_QUEUE) == keys(1)


async def test_the_loop_outlives_a_cut_connection(vhost: str, stock: None, api: ManagementApi) -> None:
    workers = Workers(1)
    stop = asyncio.Event()
    async with TcpProxy.to(vhost) as proxy, asyncio.TaskGroup() as tasks:
        link = AdminConnection(
            BrokerAddress(urls=[proxy.url], connect_timeout_seconds=1), call_timeout_seconds=1
        )
        keeper = a_keeper(link, workers)
        running = tasks.create_task(keeper.run(stop))
        await eventually(lambda: len(keeper.bound_workers) == 1)

        proxy.cut()
        await proxy.heal()
        workers.ids = frozenset({1, 2})
        await eventually(lambda: len(keeper.bound_workers) == 2)
        assert link.incarnation >= 2
        stop.set()
        await running

    assert await keys_bound(api, STOCK_QUEUE) == keys(1, 2)


async def test_a_half_open_connection_is_given_up_for_another(
    vhost: str, stock: None, api: ManagementApi
) -> None:
    workers = Workers(1)
    async with TcpProxy.to(vhost) as proxy:
        link = AdminConnection(
            BrokerAddress(urls=[proxy.url], connect_timeout_seconds=1), call_timeout_seconds=0.5
        )
        keeper = a_keeper(link, workers)
        await keeper.tick()
        proxy.freeze()
        workers.ids = frozenset({1, 2})

        with pytest.raises(Unavailable):
            await keeper.tick()
        await proxy.heal()
        await keeper.tick()

        assert link.incarnation == 2
        await link.close()
    assert await keys_bound(api, STOCK_QUEUE) == keys(1, 2)
