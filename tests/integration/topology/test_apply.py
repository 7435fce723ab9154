"""Applying the blueprint beside stock Attune, and on an empty broker."""

import asyncio

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.errors import Unavailable
from dlq_handler.host.names import OTHER_KEYS, STOCK_QUEUE
from dlq_handler.topology.apply import apply, bind, unbind
from dlq_handler.topology.blueprint import Binding, Blueprint, wanted_bindings
from sandbox.attune.topology import verify_redeclare
from tests.integration.topology.broker_side import delete_exchange, keys_bound

OWN = Blueprint(intake_queue="attune.dlx.sidecar.queue")


async def test_beside_stock_attune_only_bindings_are_added(
    vhost: str, stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    before = await api.snapshot()

    report = await apply(link, Blueprint(), {1, 2})

    after = await api.snapshot()
    assert report.made == ()
    assert report.dead_letter_exchange_type == "direct"
    assert after.queues == before.queues
    assert after.exchanges == before.exchanges
    assert await keys_bound(api, STOCK_QUEUE) == {
        "#",
        "execution.dispatch.worker.1",
        "execution.dispatch.worker.2",
    }
    await verify_redeclare(vhost, {1: 300_000})


@pytest.mark.parametrize("blueprint", [Blueprint(), OWN], ids=["stock queue", "own queue"])
async def test_after_us_an_empty_broker_takes_all_of_attunes_declares(
    vhost: str, link: AdminConnection, api: ManagementApi, blueprint: Blueprint
) -> None:
    report = await apply(link, blueprint, {1})

    assert set(report.made) == {
        "attune.events",
        "attune.executions",
        "attune.notifications",
        "attune.dlx",
        *blueprint.queues,
    }
    assert "#" in await keys_bound(api, STOCK_QUEUE)
    await verify_redeclare(vhost, {1: 300_000})


async def test_a_queue_of_our_own_takes_the_keys_from_the_stock_queue(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    await apply(link, Blueprint(), {1, 2})

    await apply(link, OWN, {1, 2})

    assert await keys_bound(api, STOCK_QUEUE) == {"#"}
    assert await keys_bound(api, OWN.intake_queue) == {
        *OTHER_KEYS,
        *(f"execution.{kind}.worker.{worker}" for kind in ("dispatch", "cancel") for worker in (1, 2)),
    }


async def test_an_existing_dead_letter_exchange_of_another_type_is_used_as_it_is(
    link: AdminConnection, api: ManagementApi
) -> None:
    async with link.channel("declare") as channel:
        await channel.exchange_declare("attune.dlx", exchange_type="topic", durable=True)

    report = await apply(link, Blueprint(), {1})

    assert report.dead_letter_exchange_type == "topic"
    assert (await api.snapshot()).exchanges["attune.dlx"].type == "topic"
    # On a topic exchange '#' would bring every letter of Attune's into the stock queue.
    assert await keys_bound(api, STOCK_QUEUE) == {"execution.dispatch.worker.1"}


async def test_thousands_of_workers_are_bound_and_bound_again(
    link: AdminConnection, api: ManagementApi
) -> None:
    workers = set(range(1, 3001))
    for _ in range(2):
        await apply(link, Blueprint(), workers)

    assert len(await keys_bound(api, STOCK_QUEUE)) == 1 + len(workers)


async def test_two_replicas_may_apply_at_once(vhost: str, link: AdminConnection, api: ManagementApi) -> None:
    async with asyncio.TaskGroup() as replicas:
        for _ in range(4):
            replicas.create_task(apply(link, Blueprint(), set(range(50))))

    assert len(await keys_bound(api, STOCK_QUEUE)) == 51


@pytest.mark.parametrize("workers", [1, 2000])
async def test_binding_to_a_broker_without_the_exchange_is_unavailable_and_the_link_lives_on(
    link: AdminConnection, workers: int
) -> None:
    await apply(link, Blueprint(), ())
    await delete_exchange(link, "attune.dlx")
    incarnation = link.incarnation

    with pytest.raises(Unavailable, match=r"no exchange 'attune\.dlx'"):
        await bind(link, Blueprint(), wanted_bindings(Blueprint(), range(workers)))

    await apply(link, Blueprint(), {1})
    assert link.incarnation == incarnation


async def test_an_unbind_of_what_is_not_bound_is_fine(
    stock: None, link: AdminConnection, api: ManagementApi
) -> None:
    await unbind(link, Blueprint(), [Binding(queue=STOCK_QUEUE, routing_key="execution.dispatch.worker.9")])

    assert await keys_bound(api, STOCK_QUEUE) == {"#"}
