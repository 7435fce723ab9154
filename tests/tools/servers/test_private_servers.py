"""A pair of our own: it outlives a kill with its data, and it does not outlive us."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aio_pika
import psutil
import pytest
import pytest_asyncio

from sandbox.servers import PrivateServers
from tests.support.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER = """
import asyncio, json
from sandbox.servers import PrivateServers

async def own():
    async with PrivateServers.launch() as servers:
        print(json.dumps([str(servers.rabbitmq.folder), str(servers.postgresql.folder)]), flush=True)
        await asyncio.Event().wait()

asyncio.run(own())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[PrivateServers]:
    async with PrivateServers.launch() as launched:
        yield launched


async def test_rows_and_databases_outlive_a_kill(servers: PrivateServers) -> None:
    postgresql = servers.postgresql
    await postgresql.create_database("kept")
    async with postgresql.session("kept") as session:
        await session.execute("CREATE TABLE fact AS SELECT 42 AS answer")
    await postgresql.kill()
    await postgresql.start()
    async with postgresql.session("kept") as session:
        assert await session.fetchval("SELECT answer FROM fact") == 42
        assert await session.fetchval("SHOW fsync") == "on"


async def test_a_stopped_database_starts_again(servers: PrivateServers) -> None:
    await servers.postgresql.stop()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await servers.postgresql.execute("SELECT 1")
    await servers.postgresql.start()
    await servers.postgresql.execute("SELECT 1")


async def test_vhost_user_and_durable_message_outlive_a_kill(servers: PrivateServers) -> None:
    rabbitmq = servers.rabbitmq
    url = await rabbitmq.create_vhost("kept")
    async with await aio_pika.connect(url, timeout=10) as connection:
        channel = await connection.channel()
        await channel.declare_queue("kept", durable=True)
        message = aio_pika.Message(b"still here", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, "kept", timeout=10)
    # RabbitMQ keeps the declaration of a queue in its own memory for up to two seconds before it is written.
    await rabbitmq.control("eval", "mnesia:sync_log().")
    await rabbitmq.kill()
    await rabbitmq.start()
    async with await aio_pika.connect(url, timeout=10) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("kept", passive=True)
        received = await queue.get(timeout=10, no_ack=True)
        assert received is not None
        assert received.body == b"still here"


async def test_nothing_is_left_when_the_owner_is_killed() -> None:
    """Neither a process nor a folder: the owner has no chance to clean up after kill -9."""
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE)
    try:
        assert owner.stdout is not None
        async with asyncio.timeout(120):
            folders = [Path(folder) for folder in json.loads(await owner.stdout.readline())]
        family = psutil.Process(owner.pid).children(recursive=True)
        names = {process.name() for process in family}
        assert {"beam.smp", "epmd", "postgres"} <= names
        assert all(folder.exists() for folder in folders)
    finally:
        owner.kill()
        await owner.communicate()  # also closes our end of its output, which waiting alone would leave open
    await eventually(lambda: not [process for process in family if process.is_running()])
    await eventually(lambda: not [folder for folder in folders if folder.exists()])
