"""The stale executions as Attune's own monitor ends them: a hundred at a time, one after the other.

For each: a guarded UPDATE that commits by itself, then the completion event, published and confirmed. The pause of a
minute between two hundreds is left out: the ratio compares only the work.
"""

import asyncio
import json
import os
import uuid
from datetime import UTC, datetime

import aio_pika
import asyncpg

from benchmarks.contender import Stopwatch

AT_A_TIME = 100

_OLDEST = """
SELECT id, action, action_ref, updated FROM execution
 WHERE status = 'scheduled' AND updated < now() - interval '300 seconds' ORDER BY updated LIMIT 100
"""
_FAIL = """
UPDATE execution SET status = 'failed', result = $2
 WHERE id = $1 AND status = 'scheduled' AND updated < now() - interval '300 seconds' RETURNING id
"""


async def main() -> None:
    watch = Stopwatch()
    database = await asyncpg.connect(os.environ["ATTUNE__DATABASE__URL"])
    await database.execute("SET search_path TO attune, public")
    broker = await aio_pika.connect(os.environ["ATTUNE__MESSAGE_QUEUE__URL"])
    async with broker:
        channel = await broker.channel(publisher_confirms=True)
        exchange = await channel.get_exchange("attune.executions", ensure=False)
        wanted = int(os.environ["BENCH_ROWS"])
        watch.letters, done = wanted, 0
        watch.start()
        while done < wanted:
            rows = await database.fetch(_OLDEST)
            if not rows:
                raise SystemExit(f"only {done} of {wanted} stale executions were there")
            for row in rows[: wanted - done]:
                await _end(database, exchange, row)
                done += 1
        watch.stop()
    await database.close()


async def _end(
    database: "asyncpg.Connection", exchange: aio_pika.abc.AbstractExchange, row: "asyncpg.Record"
) -> None:
    age = (datetime.now(UTC) - row["updated"]).total_seconds()
    result = {
        "error": f"Execution timeout: worker did not pick up task within 300 seconds (scheduled for {age:.0f} seconds)",
        "failed_by": "execution_timeout_monitor",
        "timeout_seconds": 300,
        "age_seconds": int(age),
        "original_status": "scheduled",
    }
    if not await database.fetch(_FAIL, row["id"], json.dumps(result)):
        return
    message_id = str(uuid.uuid4())
    now = datetime.now(UTC).isoformat()
    envelope = {
        "message_id": message_id,
        "correlation_id": message_id,
        "message_type": "ExecutionCompleted",
        "version": "1.0",
        "timestamp": now,
        "headers": {"retry_count": 0, "source_service": "executor"},
        "payload": {
            "execution_id": row["id"],
            "action_id": row["action"],
            "action_ref": row["action_ref"],
            "status": "Failed",
            "result": result,
            "completed_at": now,
        },
    }
    message = aio_pika.Message(
        json.dumps(envelope).encode(),
        message_id=message_id,
        content_type="application/json",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )
    await exchange.publish(message, routing_key="execution.completed")


if __name__ == "__main__":
    asyncio.run(main())
