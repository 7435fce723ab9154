"""A fleet for the benchmark of idle replicas: registered workers, their queues, and one consumer on each queue.

Real workers have a connection each. Here all consumers share one connection: the broker's own load is measured before
and with the replicas, so only the difference counts.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel, DeliveredMessage

from benchmarks.world import ACTION_REF, CONFIG, TTL_MS, WORKER_ID, Stage, World
from sandbox.attune import messages, topology
from sandbox.attune.amqp import Publisher, open_connection

HEARTBEAT_SECONDS = 10.0
PIPELINED = 250
CHANNELS = 20
FIRST_ID = 1000

# Worker 1 is unavailable, and nothing consumes its queue: its dispatches become dead letters.
_REGISTER = """
INSERT INTO worker (id, name, worker_type, worker_role, last_heartbeat)
SELECT 999 + n, 'worker-' || n, 'local', 'action', now() FROM generate_series(1, CAST($1 AS integer)) AS n
"""
_BEAT = "UPDATE worker SET last_heartbeat = now() WHERE id >= 1000"
_SCHEDULE = """
INSERT INTO execution (action, action_ref, config, worker, status, created, updated)
SELECT action.id, action.ref, $1, $2, 'scheduled', now(), now() FROM action
RETURNING id, updated
"""


@asynccontextmanager
async def fleet_stage(
    world: World, *, workers: int, has_queues: bool, print_line: Callable[[str], None]
) -> AsyncIterator[Stage]:
    name = f"bench_{uuid.uuid4().hex[:12]}"
    folder = world.folder / name
    folder.mkdir()
    try:
        stage = Stage(
            amqp_url=await world.servers.rabbitmq.create_vhost(name),
            database_url=await world.servers.postgresql.create_database(name, world.template),
            letters=0,
            folder=folder,
            management_url=world.servers.rabbitmq.management_url,
        )
        connection = await open_connection(stage.amqp_url, name="bench fleet")
        async with connection, asyncio.TaskGroup() as tasks:
            await _register(stage, workers)
            await _declare(connection, workers if has_queues else 0, print_line)
            beating = tasks.create_task(_beat(stage))
            try:
                yield stage
            finally:
                beating.cancel()
    finally:
        await world.servers.postgresql.drop_database(name)
        await _delete_vhost(world, name)


async def _delete_vhost(world: World, name: str) -> None:
    # The broker goes on deleting without a client that waits.
    with suppress(httpx.TimeoutException):
        await world.servers.rabbitmq.delete_vhost(name)


async def _register(stage: Stage, workers: int) -> None:
    async with stage.session() as session:
        await session.execute("SET session_replication_role = replica")
        await session.execute(_REGISTER, workers)
        await session.execute("VACUUM (ANALYZE) worker")


async def _beat(stage: Stage) -> None:
    async with stage.session() as session:
        await session.execute("SET session_replication_role = replica")
        while True:
            await session.execute(_BEAT)
            await asyncio.sleep(HEARTBEAT_SECONDS)


async def _declare(connection: AbstractConnection, workers: int, print_line: Callable[[str], None]) -> None:
    channel = await connection.channel()
    await topology.declare_common(channel)
    await topology.declare_executor(channel)
    await topology.declare_worker(channel, WORKER_ID, TTL_MS)
    underlay = await channel.get_underlay_channel()
    for first in range(0, workers, PIPELINED):
        some = range(FIRST_ID + first, FIRST_ID + min(first + PIPELINED, workers))
        async with asyncio.TaskGroup() as tasks:
            for worker_id in some:
                tasks.create_task(_declare_queue(underlay, worker_id))
        if first % (PIPELINED * 4) == 0:
            print_line(f"fleet: {first} of {workers} worker queues are declared")
    for queue in topology.EXECUTOR_QUEUES:
        await underlay.basic_consume(queue.name, _receive, no_ack=True)
    for number in range(min(CHANNELS, workers)):
        consuming = await connection.channel()
        consumers = await consuming.get_underlay_channel()
        for worker_id in range(FIRST_ID + number, FIRST_ID + workers, CHANNELS):
            await consumers.basic_consume(topology.worker_queue(worker_id), _receive, no_ack=True)


async def _declare_queue(channel: AbstractChannel, worker_id: int) -> None:
    for queue in topology.worker_queues(worker_id)[:1]:
        await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        await channel.queue_bind(queue.name, topology.EXECUTIONS, topology.dispatch_key(worker_id))


async def _receive(_: DeliveredMessage) -> None:
    """Nothing is dispatched to these workers; completion events are dropped."""


async def seconds_until_decided(stage: Stage, *, limit_seconds: float) -> float:
    """Dispatch one execution to the unavailable worker, and wait for the record of its dead letter."""
    connection = await open_connection(stage.amqp_url)
    async with connection, stage.session() as session:
        row = await session.fetchrow(_SCHEDULE, CONFIG, WORKER_ID) or {}
        message = messages.dispatch(
            execution_id=row["id"],
            worker_id=WORKER_ID,
            action_ref=ACTION_REF,
            scheduled_at=row["updated"],
            config=CONFIG,
        )
        began = asyncio.get_running_loop().time()
        await Publisher(connection).publish(message)
        while (seconds := asyncio.get_running_loop().time() - began) < limit_seconds:
            if await session.fetchval("SELECT status = 'failed' FROM execution WHERE id = $1", row["id"]):
                return seconds
            await asyncio.sleep(0.02)
    return limit_seconds
