"""The handler as the source document describes it: one letter at a time, SELECT, UPDATE, commit, ack, prefetch 10.

No record, no notice, no guard on the attempt. Written for speed within that description: asyncpg itself with prepared
statements, each statement its own transaction, so that a letter costs two round trips and one commit. With SQLAlchemy
or an explicit BEGIN it would be slower, and the comparison more flattering.
"""

import asyncio
import json
import os
from datetime import UTC, datetime
from typing import Any

import aio_pika
import asyncpg
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.contender import Stopwatch

QUEUE = "attune.dlx.queue"
OPEN_STATUSES = ("scheduled", "running")


async def main() -> None:
    stopwatch = Stopwatch()
    database = await asyncpg.connect(
        os.environ["ATTUNE__DATABASE__URL"], server_settings={"search_path": "attune, public"}
    )
    broker = await aio_pika.connect(os.environ["ATTUNE__MESSAGE_QUEUE__URL"])
    async with broker:
        channel = await broker.channel()
        await channel.set_qos(prefetch_count=10)
        queue = await channel.get_queue(QUEUE)
        stopwatch.start()
        async with queue.iterator() as letters:
            left = stopwatch.letters
            async for letter in letters:
                await handle(letter, database)
                left -= 1
                if left == 0:
                    break
            stopwatch.stop()
    await database.close()


async def handle(letter: AbstractIncomingMessage, database: Any) -> None:
    execution_id = json.loads(letter.body)["payload"]["execution_id"]
    status = await database.fetchval("SELECT status::text FROM execution WHERE id = $1", execution_id)
    if status in OPEN_STATUSES:
        result = {
            "error": "Worker queue TTL expired",
            "message": f"Execution {execution_id} was not taken by its worker before its message expired",
            "expired_at": datetime.now(UTC).isoformat(),
        }
        await database.execute(
            "UPDATE execution SET status = 'failed', result = $2 WHERE id = $1",
            execution_id,
            json.dumps(result),
        )
    await letter.ack()


if __name__ == "__main__":
    asyncio.run(main())
