"""One who consumes the intake queue as the sidecar does, as far as canaries are concerned. Letters are just settled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.topology.canary_watch import CanaryRecorder
from tests.support.builders import read


@asynccontextmanager
async def a_taker(
    store: Database, amqp_url: str, *, queue: str = "attune.dlx.queue", name: str = "dlq-handler.one"
) -> AsyncIterator[QueueConsumer[DeadLetter]]:
    address = BrokerAddress(urls=[amqp_url])
    admin = AdminConnection(address)
    source = QueueConsumer(
        address,
        admin,
        queue=queue,
        prefetch=10,
        batch_size=5,
        batch_wait_seconds=0.01,
        max_bytes=2**20,
        max_body_bytes=2**20,
        read=read,
        consumer_tag=name,
    )
    recorder, stop = CanaryRecorder(store, queue=queue, replica=name), asyncio.Event()

    async def take() -> None:
        while not stop.is_set():
            batch = await source.next_batch(stop)
            await recorder.record_received([one for delivery in batch if (one := delivery.item.canary_id)])
            await source.acknowledge(batch)

    await source.open()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(take())
            yield source
            stop.set()
    finally:
        await source.close()
        await admin.close()
