"""Probes learn what is there and leave no trace, also when a queue comes and goes meanwhile."""

import asyncio

import pytest

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import QueueDeclaration
from dlq_handler.broker.client.connection import BrokerAddress
from sandbox.attune.topology import verify_redeclare
from tests.integration.topology.broker_side import declare_queue, delete_queue, queue_names


async def test_ttl_and_dead_letter_exchange_of_a_stock_worker_queue_are_read(
    vhost: str, stock: None, link: AdminConnection
) -> None:
    probed = await queue_probe.probe_queue(link, "worker.1.executions")

    assert probed == QueueDeclaration(
        arguments={"x-message-ttl": 300_000, "x-dead-letter-exchange": "attune.dlx"}
    )
    assert await queue_probe.probe_ttl_ms(link, "worker.1.executions") == 300_000
    await verify_redeclare(vhost, {1: 300_000})


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-message-ttl": 0},
        {"x-dead-letter-exchange": ""},
        {"x-dead-letter-exchange": "123", "x-message-ttl": 2**31 - 1},
        {"x-queue-type": "quorum", "x-dead-letter-exchange": "attune.dlx", "x-message-ttl": 60_000},
        {"x-expires": 600_000, "x-message-ttl": 5},
        {"x-queue-type": "stream"},
    ],
    ids=str,
)
async def test_whatever_a_queue_was_declared_with_is_learned(
    arguments: dict[str, str | int], link: AdminConnection
) -> None:
    await declare_queue(link, "q", **arguments)

    probed = await queue_probe.probe_queue(link, "q")

    assert probed is not None
    assert probed.arguments == arguments


async def test_a_transient_auto_delete_queue_is_learned(link: AdminConnection) -> None:
    async with link.channel("declare") as channel:
        await channel.queue_declare("q", durable=False, auto_delete=True, arguments={"x-message-ttl": 7})

    probed = await queue_probe.probe_queue(link, "q")

    assert probed == QueueDeclaration(durable=False, auto_delete=True, arguments={"x-message-ttl": 7})


async def test_a_missing_queue_stays_missing(link: AdminConnection, api: ManagementApi) -> None:
    assert await queue_probe.probe_queue(link, "gone") is None
    assert await queue_probe.probe_ttl_ms(link, "gone") is None
    assert await queue_probe.count_queue(link, "gone") is None
    assert await queue_probe.probe_exchange_type(link, "gone", "direct") is None
    assert not await queue_probe.exchange_exists(link, "gone")

    snapshot = await api.snapshot()
    assert not snapshot.queues
    assert "gone" not in snapshot.exchanges


async def test_probing_a_queue_that_is_deleted_meanwhile_never_creates_it(
    vhost: str, link: AdminConnection, api: ManagementApi
) -> None:
    stop = asyncio.Event()

    async def probe_until_stopped() -> None:
        while not stop.is_set():
            await queue_probe.probe_queue(link, "q")

    async with AdminConnection(BrokerAddress(urls=[vhost])) as owner, asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(probe_until_stopped())
        for _ in range(40):
            await declare_queue(owner, "q", x_message_ttl=60_000, x_dead_letter_exchange="attune.dlx")
            await delete_queue(owner, "q")
            assert await queue_probe.count_queue(owner, "q") is None
        stop.set()

    assert await queue_names(api) == set()


async def test_the_type_of_an_exchange_is_learned(link: AdminConnection) -> None:
    async with link.channel("declare") as channel:
        for kind in ("direct", "topic", "fanout", "headers"):
            await channel.exchange_declare(f"a.{kind}", exchange_type=kind, durable=True)
        await channel.exchange_declare("a.transient", exchange_type="topic", durable=False)

    for kind in ("direct", "topic", "fanout", "headers"):
        assert await queue_probe.probe_exchange_type(link, f"a.{kind}", "direct") == kind
    assert await queue_probe.probe_exchange_type(link, "a.transient", "direct") == "topic"
