"""The executor's consumer of execution.status.changed. It writes nothing; an unknown id or status is an error."""

from aio_pika.abc import AbstractChannel

from sandbox.attune import topology
from sandbox.attune.amqp import QueueConsumer
from sandbox.attune.messages import Envelope
from sandbox.attune.service import AttuneService

_KNOWS = "SELECT $2::execution_status IS NOT NULL FROM execution WHERE id = $1"


class ExecutionManager(AttuneService):
    role = "manager"
    consumer: QueueConsumer | None = None

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        await topology.declare_executor(channel)
        self.consumer = QueueConsumer(
            channel,
            topology.STATUS_QUEUE,
            "executor.manager",
            self._handle,
            kept=self._kept,
            print_line=self._print_line,
        )
        await self.consumer.start()

    async def _handle(self, envelope: Envelope) -> None:
        execution_id, status = envelope.payload["execution_id"], envelope.payload["new_status"]
        if not await self.database.session.fetchval(_KNOWS, execution_id, str(status).lower()):
            raise LookupError(f"no execution {execution_id}")
