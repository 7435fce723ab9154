"""The opt-in helper that declares a worker's queue."""

import pytest

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.apply import WorkerQueueRefused, apply, declare_worker_queue
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.routing import Answer, walk
from sandbox.attune.topology import verify_redeclare
from tests.integration.topology.broker_side import declare_queue, keys_bound


async def test_a_declared_queue_is_as_attune_declares_it_and_its_letters_arrive(
    vhost: str, link: AdminConnection, api: ManagementApi
) -> None:
    await apply(link, Blueprint(), ())

    made = await declare_worker_queue(link, Blueprint(), 4, ttl_ms=300_000)

    assert made
    assert await keys_bound(api, "worker.4.executions", "attune.executions") == {
        "execution.dispatch.worker.4"
    }
    assert walk(await api.snapshot(), "worker.4.executions", STOCK_QUEUE).answer is Answer.ARRIVES
    await verify_redeclare(vhost, {4: 300_000})
    assert not await declare_worker_queue(link, Blueprint(), 4, ttl_ms=300_000)


async def test_another_ttl_of_this_queue_or_of_another_is_refused_with_both_values(
    stock: None, link: AdminConnection
) -> None:
    for worker, others in ((1, ()), (2, (1,))):
        with pytest.raises(WorkerQueueRefused, match=r"worker\.1\.executions.*300000.*60000"):
            await declare_worker_queue(link, Blueprint(), worker, ttl_ms=60_000, compare_with=others)

    assert await queue_probe.count_queue(link, "worker.2.executions") is None


async def test_a_queue_without_the_dead_letter_exchange_is_refused(
    stock: None, link: AdminConnection
) -> None:
    await declare_queue(link, "worker.3.executions", x_message_ttl=300_000)

    with pytest.raises(WorkerQueueRefused, match="x-dead-letter-exchange=None"):
        await declare_worker_queue(link, Blueprint(), 3, ttl_ms=300_000)


@pytest.mark.parametrize("ttl_ms", [0, -1, 2**31])
async def test_a_ttl_that_attune_cannot_declare_is_refused(
    ttl_ms: int, stock: None, link: AdminConnection
) -> None:
    with pytest.raises(WorkerQueueRefused, match="1 to 2147483647"):
        await declare_worker_queue(link, Blueprint(), 9, ttl_ms=ttl_ms)

    assert await queue_probe.count_queue(link, "worker.9.executions") is None
