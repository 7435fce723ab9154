"""Attune's own consumer of attune.dlx.queue, with its defects, to stand beside ours as the foreign consumer.

It fails the execution and tells nobody (D2); a database error drops the letter (D4).
"""

from datetime import datetime

from aio_pika.abc import AbstractChannel

from dlq_handler.sandbox.attune import topology
from dlq_handler.sandbox.attune.amqp import QueueConsumer
from dlq_handler.sandbox.attune.messages import Envelope, rfc3339_now
from dlq_handler.sandbox.attune.service import AttuneService

# Guarded by the attempt where the letter names one, else by the status alone.
_FAIL = """
UPDATE execution SET status = 'failed', result = $2
 WHERE id = $1 AND status = 'scheduled' AND ($3::timestamptz IS NULL OR updated = $3)
RETURNING id
"""


class StockDeadLetterHandler(AttuneService):
    """`seen`: the execution ids of letters it is done with, None where there was none. `failed`: those it failed."""

    def __init__(self, amqp_url: str, database_url: str, *, schema: str = "attune") -> None:
        super().__init__(amqp_url, database_url, schema=schema)
        self.seen: list[object] = []
        self.failed: list[int] = []
        self.consumer: QueueConsumer | None = None

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        self.consumer = QueueConsumer(channel, topology.DLX_QUEUE, "executor.dlq", self._handle, prefetch=10)
        await self.consumer.start()

    async def _handle(self, envelope: Envelope) -> None:
        execution_id = envelope.payload.get("execution_id")
        try:
            await self._fail(envelope, execution_id)
        finally:
            self.seen.append(execution_id)

    async def _fail(self, envelope: Envelope, execution_id: object) -> None:
        if envelope.message_type != "ExecutionRequested":
            return
        if not isinstance(execution_id, int) or isinstance(execution_id, bool):
            return
        result = {
            "error": "Worker queue TTL expired",
            "message": "The worker did not take the execution before its message expired",
            "expired_at": rfc3339_now(),
        }
        stamp = _parse(envelope.payload.get("scheduled_attempt_updated_at"))
        if await self.database.session.fetchval(_FAIL, execution_id, result, stamp):
            self.failed.append(execution_id)


def _parse(stamp: object) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None
