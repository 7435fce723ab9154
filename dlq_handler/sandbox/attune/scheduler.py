"""The executor's consumer of execution.requested: it claims, admits, selects a worker and dispatches.

Selection looks at role, status, cordon and heartbeat only and goes round the fitting workers by name:
no load, no queue depth, no health. So it keeps dispatching to a worker that died less than 90 s ago.
"""

from aio_pika.abc import AbstractChannel

from dlq_handler.sandbox.attune import topology
from dlq_handler.sandbox.attune.amqp import QueueConsumer
from dlq_handler.sandbox.attune.executor import admit_by_policy, claim, mark_scheduled
from dlq_handler.sandbox.attune.messages import Envelope
from dlq_handler.sandbox.attune.service import AttuneService

HEARTBEAT_FRESH_SECONDS = 90.0

_CANDIDATES = """
SELECT id FROM worker
 WHERE worker_role = 'action' AND status = 'active' AND NOT cordoned
   AND last_heartbeat BETWEEN now() - make_interval(secs => $1) AND now()
 ORDER BY name
"""


# A claim whose claimer met an error stays: only another request for the same execution takes it up again (defect D7).
_RECLAIM = """
UPDATE execution SET status = 'scheduling'
 WHERE id = $1 AND status = 'scheduling' AND updated < now() - interval '30 seconds'
RETURNING id
"""


class NoWorkerAvailable(Exception):
    """Nobody can take the execution. Not a broker's error, so its request is dropped (defect D6)."""


class Scheduler(AttuneService):
    def __init__(
        self,
        amqp_url: str,
        database_url: str,
        *,
        schema: str = "attune",
        heartbeat_fresh_seconds: float = HEARTBEAT_FRESH_SECONDS,
    ) -> None:
        super().__init__(amqp_url, database_url, schema=schema)
        self.dispatched: list[int] = []
        self.consumer: QueueConsumer | None = None
        self._heartbeat_fresh_seconds = heartbeat_fresh_seconds
        self._turn = 0

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        await topology.declare_executor(channel)
        self.consumer = QueueConsumer(
            channel, topology.REQUESTS_QUEUE, "executor.scheduler", self._handle, prefetch=10
        )
        await self.consumer.start()

    async def _handle(self, envelope: Envelope) -> None:
        execution_id = envelope.payload["execution_id"]
        session = self.database.session
        if not await claim(session, execution_id) and not await session.fetch(_RECLAIM, execution_id):
            return
        async with self.database.transaction() as transaction:
            may_go_on = await admit_by_policy(transaction, execution_id)
        if not may_go_on:
            # It waits in the line; the completion listener requests it again when a slot is free.
            await self._give_back(execution_id)
            return
        worker_id = await self._select_worker()
        if worker_id is None:
            await self._give_back(execution_id)
            raise NoWorkerAvailable(
                f"execution {execution_id}: no active, uncordoned worker with a fresh heartbeat"
            )
        for dispatch in await mark_scheduled(session, [execution_id], worker_id):
            await self.publisher.publish(dispatch.message)
            self.dispatched.append(execution_id)

    async def _select_worker(self) -> int | None:
        rows = await self.database.session.fetch(_CANDIDATES, self._heartbeat_fresh_seconds)
        if not rows:
            return None
        self._turn += 1
        worker_id: int = rows[self._turn % len(rows)]["id"]
        return worker_id

    async def _give_back(self, execution_id: int) -> None:
        await self.database.session.execute(
            "UPDATE execution SET status = 'requested' WHERE id = $1 AND status = 'scheduling'", execution_id
        )
