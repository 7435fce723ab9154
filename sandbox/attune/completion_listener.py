"""The executor's consumer of execution.completed: it frees the slot, moves the line, advances the workflow.

Like stock Attune it believes the row, not the message: status and result of a completion event are ignored. Freeing a
slot repeats harmlessly; retrying a workflow task does not (a second completion event makes a second retry).
"""

import asyncio
from typing import Any, Unpack

from aio_pika.abc import AbstractChannel

from sandbox.attune import admission, topology
from sandbox.attune.amqp import PublishFailed, QueueConsumer
from sandbox.attune.database import Row
from sandbox.attune.defects import Defect
from sandbox.attune.executor import requested_message
from sandbox.attune.messages import Envelope, SeenCompletion, seen_completion
from sandbox.attune.service import AttuneService, Wiring

_RETRY = """
INSERT INTO execution (action, action_ref, config, env_vars, parent, enforcement, executor, workflow_def,
                       workflow_task, retry_count, original_execution)
SELECT action, action_ref, config, env_vars, parent, enforcement, executor, workflow_def,
       workflow_task
           || jsonb_build_object('retry_count', coalesce((workflow_task ->> 'retry_count')::int, 0) + 1),
       retry_count + 1, coalesce(original_execution, id)
  FROM execution WHERE id = $1
RETURNING id
"""

_RETRY_DELAY = """
SELECT (task_graph #>> ARRAY['nodes', $2, 'retry', 'delay'])::float8 FROM workflow_execution WHERE id = $1
"""

_ADVANCE = """
UPDATE workflow_execution
   SET current_tasks = array_remove(current_tasks, $2),
       completed_tasks = CASE WHEN $3 THEN array_append(completed_tasks, $2) ELSE completed_tasks END,
       failed_tasks = CASE WHEN $3 THEN failed_tasks ELSE array_append(failed_tasks, $2) END
 WHERE id = $1 AND NOT $2 = ANY(completed_tasks || failed_tasks)
"""


class CompletionListener(AttuneService):
    """`completions`: those it is done with, in order. `promoted`: the executions it called up from a line."""

    role = "completion listener"

    def __init__(self, amqp_url: str, database_url: str, **wiring: Unpack[Wiring]) -> None:
        super().__init__(amqp_url, database_url, **wiring)
        self.completions: list[SeenCompletion] = []
        self.promoted: list[int] = []
        self.consumer: QueueConsumer | None = None

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        await topology.declare_executor(channel)
        self.consumer = QueueConsumer(
            channel,
            topology.COMPLETED_QUEUE,
            "executor.completion",
            self._handle,
            kept=self._kept,
            print_line=self._print_line,
        )
        await self.consumer.start()

    async def _handle(self, envelope: Envelope) -> None:
        completion = seen_completion(envelope)
        try:
            await self._complete(completion)
        finally:
            self.completions.append(completion)

    async def _complete(self, completion: SeenCompletion) -> None:
        row = await self.database.session.fetchrow(
            "SELECT id, status, workflow_task FROM execution WHERE id = $1", completion.execution_id
        )
        if row is not None and row["workflow_task"] is not None:
            if not await self._retry(row):
                await self._advance_workflow(row)
            elif Defect.D13 not in self.cured:
                return
        await self._free_slot(completion.execution_id)

    async def _free_slot(self, execution_id: int) -> None:
        async with self.database.transaction() as session:
            released = await admission.release(session, execution_id)
        if released is None:
            return
        if released.promoted is None:
            self._print_line(f"execution {execution_id} has ended: its slot is free")
            return
        try:
            await self.publisher.publish(await requested_message(self.database.session, released.promoted))
        except PublishFailed:
            async with self.database.transaction() as session:
                await admission.restore(session, execution_id, released)
            raise
        self._print_line(f"execution {execution_id} has ended: execution {released.promoted} gets its slot")
        self.promoted.append(released.promoted)

    async def _retry(self, row: Row) -> bool:
        task = row["workflow_task"]
        if row["status"] not in {"failed", "timeout"}:
            return False
        if (task.get("retry_count") or 0) >= (task.get("max_retries") or 0):
            return False
        if Defect.D13 not in self.cured:
            await self._hold_up(await self._retry_delay_seconds(task))
        retry_id = await self.database.session.fetchval(_RETRY, row["id"])
        await self.publisher.publish(await requested_message(self.database.session, retry_id))
        return True

    async def _retry_delay_seconds(self, task: dict[str, Any]) -> float:
        """The plain delay: the reference knows no backoff."""
        workflow, name = task["workflow_execution"], task["task_name"]
        return await self.database.session.fetchval(_RETRY_DELAY, workflow, name) or 0.0

    async def _hold_up(self, seconds: float) -> None:
        """With the message unacknowledged, and with those behind it."""
        await asyncio.sleep(seconds)

    async def _advance_workflow(self, row: Row) -> None:
        task = row["workflow_task"]
        async with self.database.transaction() as session:
            await session.execute("SELECT pg_advisory_xact_lock($1)", task["workflow_execution"])
            await session.execute(
                _ADVANCE, task["workflow_execution"], task["task_name"], row["status"] == "completed"
            )
