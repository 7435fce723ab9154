"""Attune's own timeout monitor: it fails stale scheduled executions and abandons those that ran on unavailable workers.

With its shape and defects: a hundred rows a look, one by one; a row that cannot be announced is not tried again, as it
is scheduled no more; and it goes by its own timeout, whether or not the message can still be taken and run (D12; cured:
not before the queue's TTL and the grace have passed, nor while the worker's queue holds a message or has a consumer,
who may hold one: what a worker took and has not acknowledged does not expire).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandbox.attune import messages
from sandbox.attune.amqp import BROKER_AWAY, PublishFailed
from sandbox.attune.database import DATABASE_TROUBLE, Database, Row
from sandbox.attune.defects import NONE_CURED, Cured, Defect
from sandbox.attune.first_event import first_of
from sandbox.attune.log_line import PrintLine, silent
from sandbox.attune.messages import Publish
from sandbox.times import Times

_TROUBLE: tuple[type[Exception], ...] = (PublishFailed, *BROKER_AWAY, *DATABASE_TROUBLE)
_SIGNED = "execution_timeout_monitor"

_WAITED_FOR = """
SELECT DISTINCT worker FROM execution
 WHERE status = 'scheduled' AND updated < now() - make_interval(secs => $1) AND worker IS NOT NULL
"""

_STALE = """
SELECT id, action, action_ref, extract(epoch FROM now() - updated)::float8 AS age_seconds
  FROM execution
 WHERE status = 'scheduled' AND updated < now() - make_interval(secs => $1)
   AND coalesce(worker <> ALL($2::bigint[]), true)
 ORDER BY updated LIMIT 100
"""

_FAIL = """
UPDATE execution SET status = 'failed', result = $3
 WHERE id = $1 AND status = 'scheduled' AND updated < now() - make_interval(secs => $2)
RETURNING id
"""

_ORPHANED = """
SELECT execution.id, execution.action, execution.action_ref, worker.name, worker.status,
       extract(epoch FROM now() - worker.last_heartbeat)::float8 AS age_seconds
  FROM execution
  JOIN worker ON worker.id = execution.worker
 WHERE execution.status = 'running'
   AND (worker.status IN ('inactive', 'error') OR worker.last_heartbeat IS NULL
        OR worker.last_heartbeat < now() - make_interval(secs => $1))
"""

_ABANDON = """
UPDATE execution SET status = 'abandoned', result = $2 WHERE id = $1 AND status = 'running' RETURNING id
"""


MayStillTake = Callable[[int], Awaitable[bool]]
"""Whether a message to this worker can still be run. Raises one of BROKER_AWAY when that is unknown."""


class StockTimeoutMonitor:
    """`ended`: the executions that it ended. `may_still_take` is asked only when D12 is cured."""

    def __init__(
        self,
        database: Database,
        publish: Publish,
        may_still_take: MayStillTake,
        *,
        times: Times,
        scheduled_timeout_seconds: float,
        check_seconds: float,
        cured: Cured = NONE_CURED,
        print_line: PrintLine = silent,
    ) -> None:
        self.ended: list[int] = []
        self._database, self._publish, self._print_line = database, publish, print_line
        self._may_still_take, self._is_cured = may_still_take, Defect.D12 in cured
        self._timeout_seconds = float(scheduled_timeout_seconds)
        if self._is_cured:
            can_run_until = times.worker_queue_ttl_ms / 1000 + times.grace_seconds
            self._timeout_seconds = max(self._timeout_seconds, can_run_until)
        self._unavailable_after_seconds = float(times.unavailable_after_seconds)
        self._check_seconds = check_seconds

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.tick()
            except _TROUBLE as error:
                # As Attune: one failing row ends the look.
                self._print_line(f"timeout monitor: this look is given up: {type(error).__name__}: {error}")
            await first_of(stop, seconds=self._check_seconds)

    async def tick(self) -> None:
        session = self._database.session
        for row in await session.fetch(_STALE, self._timeout_seconds, await self._spared()):
            result = {
                "error": f"no worker took the execution within {self._timeout_seconds:g} seconds",
                "failed_by": _SIGNED,
                "timeout_seconds": int(self._timeout_seconds),
                "age_seconds": int(row["age_seconds"]),
                "original_status": "scheduled",
            }
            if await session.fetchval(_FAIL, row["id"], self._timeout_seconds, result):
                await self._announce(row, "failed", result)
        for row in await session.fetch(_ORPHANED, self._unavailable_after_seconds):
            result = {
                "error": f"worker {row['name']} became unavailable while it ran the execution",
                "abandoned_by": _SIGNED,
                "worker_status": row["status"],
                "heartbeat_age_seconds": None if row["age_seconds"] is None else int(row["age_seconds"]),
                "original_status": "running",
            }
            if await session.fetchval(_ABANDON, row["id"], result):
                await self._announce(row, "abandoned", result)

    async def _spared(self) -> list[int]:
        """Workers whose executions are left alone in this look."""
        if not self._is_cured:
            return []
        rows = await self._database.session.fetch(_WAITED_FOR, self._timeout_seconds)
        return [row["worker"] for row in rows if await self._may_still_take(row["worker"])]

    async def _announce(self, row: Row, status: str, result: dict[str, Any]) -> None:
        self.ended.append(row["id"])
        self._print_line(f"execution {row['id']} {status}: {result['error']}")
        await self._publish(
            messages.execution_completed(
                execution_id=row["id"],
                action_id=row["action"],
                action_ref=row["action_ref"],
                status=status,
                result=result,
                source="executor",
            )
        )
