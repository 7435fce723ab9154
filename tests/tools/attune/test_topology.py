"""What stock Attune declares, and why its dead letters are lost."""

import asyncio
from collections.abc import AsyncIterator

import aiormq
import pytest
from aio_pika.abc import AbstractChannel, ExchangeType

from sandbox.attune import topology
from sandbox.attune.amqp import open_connection
from sandbox.attune.executor import StockExecutor
from sandbox.attune.worker import StockWorker
from tests.tools.attune.until_ready import until_ready


@pytest.fixture
async def channel(vhost: str) -> AsyncIterator[AbstractChannel]:
    connection = await open_connection(vhost)
    async with connection:
        yield await connection.channel()


@pytest.fixture
async def short_lived(vhost: str, database: str) -> AsyncIterator[StockWorker]:
    """A worker whose queue lets a message live for 50 ms, and who takes none."""
    async with StockWorker(vhost, database, name="worker-short", ttl_ms=50) as service:
        yield service


async def test_in_the_stock_topology_an_expired_dispatch_is_lost(
    vhost: str, executor: StockExecutor, short_lived: StockWorker, channel: AbstractChannel
) -> None:
    # A queue bound with the literal key of the dispatch proves that the letters passed that exchange.
    witness = await channel.declare_queue("witness", durable=True)
    await witness.bind(topology.DLX, topology.dispatch_key(short_lived.id))
    await executor.schedule_many(20, short_lived.id)

    await until_ready(vhost, "witness", 20)
    assert await topology.ready_count(vhost, topology.worker_queue(short_lived.id)) == 0
    assert await topology.ready_count(vhost, topology.DLX_QUEUE) == 0


async def test_bound_with_the_exact_key_the_stock_queue_receives_the_letter_unchanged(
    vhost: str, executor: StockExecutor, short_lived: StockWorker, channel: AbstractChannel
) -> None:
    queue = await channel.get_queue(topology.DLX_QUEUE)
    await queue.bind(topology.DLX, topology.dispatch_key(short_lived.id))
    dispatch = await executor.schedule(await executor.create_execution(), short_lived.id)

    await until_ready(vhost, topology.DLX_QUEUE, 1)
    letter = await queue.get(no_ack=True)
    assert letter is not None
    assert letter.body == dispatch.message.body
    assert letter.message_id == dispatch.message.message_id
    assert letter.routing_key == topology.dispatch_key(short_lived.id)
    death = letter.headers["x-death"]
    assert isinstance(death, list)
    assert isinstance(death[0], dict)
    assert (death[0]["reason"], death[0]["queue"], death[0]["count"]) == (
        "expired",
        topology.worker_queue(short_lived.id),
        1,
    )
    assert letter.headers["x-first-death-queue"] == topology.worker_queue(short_lived.id)


async def test_attune_can_start_again_after_bindings_were_added(
    vhost: str, executor: StockExecutor, worker: StockWorker, channel: AbstractChannel
) -> None:
    queue = await channel.get_queue(topology.DLX_QUEUE)
    await queue.bind(topology.DLX, topology.dispatch_key(worker.id))
    await topology.verify_redeclare(vhost, {worker.id: topology.DEFAULT_TTL_MS})


async def test_redeclaring_with_another_ttl_is_refused(vhost: str, worker: StockWorker) -> None:
    with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed, match="x-message-ttl"):
        await topology.verify_redeclare(vhost, {worker.id: 60_000})


async def test_a_changed_dead_letter_exchange_keeps_attune_from_starting(
    vhost: str, channel: AbstractChannel
) -> None:
    await channel.declare_exchange(topology.DLX, ExchangeType.TOPIC, durable=True)
    with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed, match="type"):
        await topology.verify_redeclare(vhost)


async def test_each_service_declares_only_what_it_consumes(vhost: str, worker: StockWorker) -> None:
    assert await topology.ready_count(vhost, topology.worker_queue(worker.id)) == 0
    with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
        await topology.ready_count(vhost, topology.COMPLETED_QUEUE)


async def test_a_ttl_beyond_32_bits_is_refused_here_instead_of_wrapping() -> None:
    with pytest.raises(ValueError, match="signed 32-bit"):
        topology.worker_queues(1, 2**31)


async def test_a_dispatch_to_a_worker_without_a_queue_is_confirmed_and_lost(executor: StockExecutor) -> None:
    worker_id = await executor.database.session.fetchval(
        """INSERT INTO worker (name, worker_type, worker_role, last_heartbeat)
           VALUES ('worker-ghost', 'local', 'action', now()) RETURNING id"""
    )
    async with asyncio.timeout(10):
        await executor.schedule(await executor.create_execution(), worker_id)
