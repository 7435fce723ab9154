"""The executor's hands: create, admit, schedule and dispatch executions exactly as stock Attune does.

Nothing happens by itself here: tests, benchmark and demo call the steps. The executor's consumers, in
scheduler.py and completion_listener.py, call the same steps for each message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aio_pika.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity

from sandbox.attune import admission, messages, topology
from sandbox.attune.actions import ensure_action
from sandbox.attune.amqp import RPC_SECONDS, loss_as_error
from sandbox.attune.database import Row, Session
from sandbox.attune.defects import Cured, Defect
from sandbox.attune.service import AttuneService

# Small enough to give the rows of a load several stamps, large enough to be quick.
_BATCH = 1000

_CLAIM = """
UPDATE execution SET status = 'scheduling'
 WHERE id = ANY($1::bigint[]) AND status = 'requested'
RETURNING id
"""

# RETURNING shows what the BEFORE trigger wrote: this `updated` is the attempt's stamp, to the microsecond.
_SCHEDULE = """
UPDATE execution SET status = 'scheduled', worker = $2
 WHERE id = ANY($1::bigint[]) AND status = 'scheduling'
RETURNING id, action_ref, config, updated
"""

_SCHEDULED = """
SELECT id, worker, action_ref, config, updated
  FROM execution WHERE id = $1 AND status = 'scheduled' AND worker IS NOT NULL
"""

_CREATE = """
INSERT INTO execution
    (action, action_ref, config, parent, enforcement, workflow_task, max_retries, workflow_def)
SELECT action.id, $1, $2, $3, $4, coalesce($5, {no_task}), $6, {workflow_def}
  FROM generate_series(1, $7) LEFT JOIN action ON action.ref = $1
RETURNING id
"""

_CREATE_SCHEDULED = """
INSERT INTO execution (action, action_ref, config, worker, status, workflow_task, workflow_def)
SELECT action.id, $1, $2, $3, 'scheduled', {no_task}, {workflow_def}
  FROM generate_series(1, $4) LEFT JOIN action ON action.ref = $1
RETURNING id, action_ref, config, updated
"""


class NotSchedulable(Exception):
    """An execution was not in the status that scheduling starts from: another process was first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One scheduled attempt: the row's `updated`, and the message that carries it to the worker."""

    execution_id: int
    worker_id: int
    scheduled_at: datetime
    message: messages.StockMessage


class StockExecutor(AttuneService):
    role = "publisher"

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        await topology.declare_executor(channel)

    async def ensure_action(self, ref: str, *, concurrency_limit: int | None = None) -> int:
        """The id of the action, created with its pack if missing; a limit becomes a policy of its own."""
        async with self.database.transaction() as session:
            return await ensure_action(session, ref, concurrency_limit=concurrency_limit)

    async def create_execution(
        self,
        action_ref: str = "core.echo",
        *,
        config: dict[str, Any] | None = None,
        parent: int | None = None,
        enforcement: int | None = None,
        workflow_task: dict[str, Any] | None = None,
        max_retries: int | None = None,
    ) -> int:
        """A row in status `requested`. It is not announced: call request(), or schedule() it at once."""
        execution_id: int = await self.database.session.fetchval(
            as_attune_writes(_CREATE, self.cured),
            *(action_ref, config, parent, enforcement, workflow_task, max_retries, 1),
        )
        return execution_id

    async def request(self, execution_id: int) -> None:
        """Ask the scheduler for it, as the API does after creating the row."""
        await self.publisher.publish(await requested_message(self.database.session, execution_id))

    async def admit(self, execution_id: int) -> bool:
        """Apply the action's concurrency limit: True if the execution may go on, False if it waits."""
        async with self.database.transaction() as session:
            return await admit_by_policy(session, execution_id)

    async def schedule(self, execution_id: int, worker_id: int) -> Dispatch:
        """requested → scheduling → scheduled on that worker, each a commit of its own, then the dispatch."""
        session = self.database.session
        if await claim(session, execution_id):
            scheduled = await mark_scheduled(session, [execution_id], worker_id)
            if scheduled:
                await self.publisher.publish(scheduled[0].message)
                return scheduled[0]
        raise NotSchedulable(f"execution {execution_id} is not 'requested'")

    async def dispatch(self, execution_id: int) -> Dispatch:
        """Dispatch a row that is `scheduled` already, stamped with its present `updated`."""
        row = await self.database.session.fetchrow(_SCHEDULED, execution_id)
        if row is None:
            raise NotSchedulable(f"execution {execution_id} is not 'scheduled' on a worker")
        dispatch = _dispatch_of(row, row["worker"])
        await self.publisher.publish(dispatch.message)
        return dispatch

    async def may_still_take(self, worker_id: int) -> bool:
        """Whether a message waits in the worker's queue, or a consumer may hold one, unacknowledged.

        Raises one of BROKER_AWAY.
        """
        if self._connection is None:
            raise ConnectionError("there is no connection to the broker")
        with loss_as_error():
            # Of its own, for the broker closes a channel that asks for a queue which is not there.
            channel = await self._connection.channel()
            try:
                queue = await channel.declare_queue(
                    topology.worker_queue(worker_id), passive=True, timeout=RPC_SECONDS
                )
            except ChannelNotFoundEntity:
                return False
            await channel.close()
        found = queue.declaration_result
        return bool(found.message_count or found.consumer_count)

    async def schedule_many(
        self,
        count: int,
        worker_id: int,
        *,
        action_ref: str = "core.echo",
        config: dict[str, Any] | None = None,
        straight: bool = False,
    ) -> list[Dispatch]:
        """Create, schedule and dispatch `count` executions, fast. Rows of one batch share their stamp.

        `straight` inserts the rows as `scheduled` at once: for loads where only the end of the way matters.
        """
        session = self.database.session
        dispatches: list[Dispatch] = []
        while len(dispatches) < count:
            size = min(_BATCH, count - len(dispatches))
            if straight:
                create = as_attune_writes(_CREATE_SCHEDULED, self.cured)
                rows = await session.fetch(create, action_ref, config, worker_id, size)
                batch = [_dispatch_of(row, worker_id) for row in rows]
            else:
                create = as_attune_writes(_CREATE, self.cured)
                rows = await session.fetch(create, action_ref, config, None, None, None, None, size)
                ids = [row["id"] for row in rows]
                await session.fetch(_CLAIM, ids)
                batch = await mark_scheduled(session, ids, worker_id)
            await self.publisher.publish_many(dispatch.message for dispatch in batch)
            dispatches += batch
        return dispatches


def as_attune_writes(insert: str, cured: Cured) -> str:
    """The statement with what Attune writes to the columns of workflows: JSON_NULL and NO_WORKFLOW_DEF."""
    return insert.format(
        no_task="CAST(NULL AS jsonb)" if Defect.JSON_NULL in cured else "CAST('null' AS jsonb)",
        workflow_def="action.workflow_def" if Defect.NO_WORKFLOW_DEF in cured else "NULL",
    )


async def claim(session: Session, execution_id: int) -> bool:
    """requested → scheduling; exactly one of many claimants succeeds."""
    return bool(await session.fetch(_CLAIM, [execution_id]))


async def mark_scheduled(session: Session, ids: Sequence[int], worker_id: int) -> list[Dispatch]:
    """scheduling → scheduled. The messages are made, not published: the hand-over comes after the commit."""
    return [_dispatch_of(row, worker_id) for row in await session.fetch(_SCHEDULE, ids, worker_id)]


def _dispatch_of(row: Row, worker_id: int) -> Dispatch:
    return Dispatch(
        execution_id=row["id"],
        worker_id=worker_id,
        scheduled_at=row["updated"],
        message=messages.dispatch(
            execution_id=row["id"],
            worker_id=worker_id,
            action_ref=row["action_ref"],
            scheduled_at=row["updated"],
            config=row["config"],
        ),
    )


async def admit_by_policy(session: Session, execution_id: int) -> bool:
    action_id = await session.fetchval("SELECT action FROM execution WHERE id = $1", execution_id)
    limit = None if action_id is None else await admission.concurrency_limit(session, action_id)
    if limit is None:
        return True
    return await admission.admit(session, execution_id=execution_id, action_id=action_id, limit=limit)


async def requested_message(session: Session, execution_id: int) -> messages.StockMessage:
    row = await session.fetchrow(
        "SELECT id, action, action_ref, parent, enforcement, config FROM execution WHERE id = $1",
        execution_id,
    )
    if row is None:
        raise LookupError(f"no execution {execution_id}")
    return messages.execution_requested(
        execution_id=row["id"],
        action_id=row["action"],
        action_ref=row["action_ref"],
        parent_id=row["parent"],
        enforcement_id=row["enforcement"],
        config=row["config"],
    )
