"""The executor's consumer of execution.requested: it claims, admits, selects a worker and dispatches.

Four ends beside a dispatch: it waits in the line of its action; no worker with its runtimes is registered, and it
fails at once; no such worker is available, or its action has a limit (D15), and its request is dropped while the row
goes back to requested (D6).
"""

from collections.abc import Sequence
from typing import Unpack

from aio_pika.abc import AbstractChannel

from sandbox.attune import messages, topology
from sandbox.attune.admission import UndecodableSum
from sandbox.attune.amqp import QueueConsumer
from sandbox.attune.defects import Defect
from sandbox.attune.executor import admit_by_policy, claim, mark_scheduled
from sandbox.attune.messages import Envelope
from sandbox.attune.service import AttuneService, Wiring
from sandbox.attune.worker_selection import HEARTBEAT_FRESH_SECONDS, WorkerSelection
from sandbox.times import STOCK

# A claim whose claimer met an error stays: only another request for the same execution takes it up again (defect D7).
_RECLAIM = """
UPDATE execution SET status = 'scheduling'
 WHERE id = $1 AND status = 'scheduling' AND updated < now() - make_interval(secs => $2)
RETURNING id
"""

_FAIL = """
UPDATE execution SET status = 'failed', result = $2 WHERE id = $1 AND status = 'scheduling'
RETURNING action, action_ref
"""


class NoWorkerAvailable(Exception):
    """No worker can take the execution now. Not an error of the broker, so its request is dropped (defect D6)."""


class Scheduler(AttuneService):
    role = "scheduler"

    def __init__(
        self,
        amqp_url: str,
        database_url: str,
        *,
        heartbeat_fresh_seconds: float = HEARTBEAT_FRESH_SECONDS,
        reclaim_after_seconds: float = STOCK.reclaim_after_seconds,
        **wiring: Unpack[Wiring],
    ) -> None:
        super().__init__(amqp_url, database_url, **wiring)
        self.dispatched: list[int] = []
        self.consumer: QueueConsumer | None = None
        self._selection = WorkerSelection(heartbeat_fresh_seconds)
        self._reclaim_after_seconds = reclaim_after_seconds

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        await topology.declare_executor(channel)
        self.consumer = QueueConsumer(
            channel,
            topology.REQUESTS_QUEUE,
            "executor.scheduler",
            self._handle,
            kept=(*self._kept, NoWorkerAvailable) if Defect.D6 in self.cured else self._kept,
            print_line=self._print_line,
        )
        await self.consumer.start()

    async def _handle(self, envelope: Envelope) -> None:
        execution_id = envelope.payload["execution_id"]
        session = self.database.session
        if not await claim(session, execution_id) and not await session.fetch(
            _RECLAIM, execution_id, self._reclaim_after_seconds
        ):
            return
        try:
            async with self.database.transaction() as transaction:
                may_go_on = await admit_by_policy(transaction, execution_id)
        except UndecodableSum:
            await self._give_back(execution_id)
            raise
        if not may_go_on:
            # It waits in the line; the completion listener requests it again when a slot is free.
            await self._give_back(execution_id)
            self._print_line(f"execution {execution_id} waits in the line of its action")
            return
        choice = await self._selection.choose(session, execution_id)
        if not choice.has_fitting_worker:
            await self._fail(execution_id, choice.wanted)
            return
        if choice.worker_id is None:
            await self._give_back(execution_id)
            raise NoWorkerAvailable(
                f"execution {execution_id}: no active, uncordoned worker with a fresh heartbeat"
            )
        for dispatch in await mark_scheduled(session, [execution_id], choice.worker_id):
            await self.publisher.publish(dispatch.message)
            self.dispatched.append(execution_id)
            self._print_line(f"execution {execution_id} is dispatched to worker {choice.worker_id}")

    async def _fail(self, execution_id: int, wanted: Sequence[str]) -> None:
        """It can never be scheduled: no worker with the runtimes that it needs is registered."""
        result = {
            "error": "No compatible worker",
            "message": f"no worker is registered that has {' and '.join(wanted)}",
        }
        row = await self.database.session.fetchrow(_FAIL, execution_id, result)
        if row is None:
            return
        self._print_line(f"execution {execution_id} fails: {result['message']}")
        await self.publisher.publish(
            messages.execution_completed(
                execution_id=execution_id,
                action_id=row["action"],
                action_ref=row["action_ref"],
                status="failed",
                result=result,
                source="executor",
                is_capitalised=False,
            )
        )

    async def _give_back(self, execution_id: int) -> None:
        await self.database.session.execute(
            "UPDATE execution SET status = 'requested' WHERE id = $1 AND status = 'scheduling'", execution_id
        )
