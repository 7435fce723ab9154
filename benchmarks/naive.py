"""The handler as the source document describes it: one letter at a time, SELECT, UPDATE, commit, ack, prefetch 10.

No record, no completion event, no guard on the attempt. Two variants: `sqlalchemy` uses the same libraries as
dlq-handler, so that the difference shows the effect of batching; `asyncpg` is the fastest that fits the description:
no layer above the driver, prepared statements, each statement its own transaction, so two round trips per dead
letter, not four.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aio_pika
import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.contender import Stopwatch

QUEUE = "attune.dlx.queue"
OPEN_STATUSES = ("scheduled", "running")
SERVER_SETTINGS = {"search_path": "attune, public"}

FailExecution = Callable[[int], Awaitable[None]]


async def main(driver: str) -> None:
    stopwatch = Stopwatch()
    async with DRIVERS[driver](os.environ["ATTUNE__DATABASE__URL"]) as fail_execution:
        broker = await aio_pika.connect(os.environ["ATTUNE__MESSAGE_QUEUE__URL"])
        async with broker:
            channel = await broker.channel()
            await channel.set_qos(prefetch_count=10)
            queue = await channel.get_queue(QUEUE)
            stopwatch.start()
            async with queue.iterator() as letters:
                left = stopwatch.letters
                async for letter in letters:
                    await fail_execution(json.loads(letter.body)["payload"]["execution_id"])
                    await letter.ack()
                    left -= 1
                    if left == 0:
                        break
                stopwatch.stop()


@asynccontextmanager
async def by_sqlalchemy(url: str) -> AsyncIterator[FailExecution]:
    engine = create_async_engine(
        url.replace("postgresql://", "postgresql+asyncpg://"),
        connect_args={"server_settings": SERVER_SETTINGS},
    )
    select = text("SELECT CAST(status AS text) FROM execution WHERE id = :id")
    update = text("UPDATE execution SET status = 'failed', result = CAST(:result AS jsonb) WHERE id = :id")

    async def fail_execution(execution_id: int) -> None:
        async with engine.begin() as transaction:
            status = (await transaction.execute(select, {"id": execution_id})).scalar()
            if status in OPEN_STATUSES:
                await transaction.execute(update, {"id": execution_id, "result": result_of(execution_id)})

    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
    try:
        yield fail_execution
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[FailExecution]:
    connection = await asyncpg.connect(url, server_settings=SERVER_SETTINGS)

    async def fail_execution(execution_id: int) -> None:
        status = await connection.fetchval("SELECT status::text FROM execution WHERE id = $1", execution_id)
        if status in OPEN_STATUSES:
            await connection.execute(
                "UPDATE execution SET status = 'failed', result = $2 WHERE id = $1",
                execution_id,
                result_of(execution_id),
            )

    try:
        yield fail_execution
    finally:
        await connection.close()


def result_of(execution_id: int) -> str:
    return json.dumps(
        {
            "error": "Worker queue TTL expired",
            "message": f"Execution {execution_id} was not taken by its worker before its message expired",
            "expired_at": datetime.now(UTC).isoformat(),
        }
    )


DRIVERS = {"sqlalchemy": by_sqlalchemy, "asyncpg": by_asyncpg}

if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
