"""One who consumes the intake queue as the sidecar does, as far as canaries are concerned. Letters are just settled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_handler.broker.connection import BrokerAddress
from dlq_handler.broker.dead_letter_source import DeadLetterSource
from dlq_handler.domain.canary import is_canary
from dlq_handler.services.canary_watch import CanarySeer
from dlq_handler.store.engine import Database


@asynccontextmanager
async def a_taker(
    store: Database, amqp_url: str, *, queue: str = "attune.dlx.queue", name: str = "dlq-handler.one"
) -> AsyncIterator[DeadLetterSource]:
    source = DeadLetterSource(
        BrokerAddress(urls=[amqp_url]),
        queue=queue,
        prefetch=10,
        batch_size=5,
        batch_wait_seconds=0.01,
        max_bytes=2**20,
        body_limit_bytes=1024,
        consumer_tag=name,
    )
    seer, stop = CanarySeer(store, queue=queue, instance=name), asyncio.Event()

    async def take() -> None:
        while not stop.is_set():
            batch = await source.next_batch(stop)
            await seer.see([delivery.letter for delivery in batch if is_canary(delivery.letter)])
            await source.settle(batch)

    await source.open()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(take())
            yield source
            stop.set()
    finally:
        await source.close()
