"""Attune's own consumer of attune.dlx.queue, with its defects, to stand beside ours as the other consumer.

It fails the execution and publishes no completion event (D2); a database error drops the letter (D4, cured with D5).
"""

from typing import Unpack

from aio_pika.abc import AbstractChannel

from sandbox.attune import messages, topology
from sandbox.attune.amqp import QueueConsumer
from sandbox.attune.defects import Defect
from sandbox.attune.messages import Envelope, rfc3339_now
from sandbox.attune.service import AttuneService, Wiring

# Guarded by the attempt where the letter names one, else by the status alone.
_FAIL = """
UPDATE execution SET status = 'failed', result = $2
 WHERE id = $1 AND status = 'scheduled' AND ($3::timestamptz IS NULL OR updated = $3)
RETURNING action, action_ref
"""


class StockDeadLetterHandler(AttuneService):
    """`seen`: the execution ids of letters it is done with, None where there was none. `failed`: those it failed."""

    role = "dead-letter handler"

    def __init__(self, amqp_url: str, database_url: str, **wiring: Unpack[Wiring]) -> None:
        super().__init__(amqp_url, database_url, **wiring)
        self.seen: list[object] = []
        self.failed: list[int] = []
        self.consumer: QueueConsumer | None = None

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        self.consumer = QueueConsumer(
            channel,
            topology.DLX_QUEUE,
            "executor.dlq",
            self._handle,
            kept=self._kept,
            print_line=self._print_line,
        )
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
        stamp = messages.read_stamp(envelope.payload.get("scheduled_attempt_updated_at"))
        row = await self.database.session.fetchrow(_FAIL, execution_id, result, stamp)
        if row is None:
            return
        self.failed.append(execution_id)
        self._print_line(f"execution {execution_id}: its letter arrived, failed")
        if Defect.D2 in self.cured:
            await self.publisher.publish(
                messages.execution_completed(
                    execution_id=execution_id,
                    action_id=row["action"],
                    action_ref=row["action_ref"],
                    status="failed",
                    result=result,
                    source="executor",
                )
            )
