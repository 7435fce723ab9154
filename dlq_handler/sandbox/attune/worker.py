"""A stock Attune worker: registers by name, owns three queues, runs dispatches, is lost in every known way.

Its defects are kept: it acks before it works (D9), writes `running` over everything but a cancellation (D8),
and its heartbeat never makes an inactive worker active again (D10).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from dlq_handler.sandbox.attune import messages, topology
from dlq_handler.sandbox.attune.amqp import RPC_SECONDS
from dlq_handler.sandbox.attune.database import Database, DatabaseError
from dlq_handler.sandbox.attune.service import AttuneService

RunAction = Callable[[dict[str, Any]], Awaitable[object]]

_REGISTER = """
INSERT INTO worker (name, worker_type, worker_role, host, status, capabilities, last_heartbeat)
VALUES ($1, 'local', 'action', $2, 'active', $3, now())
ON CONFLICT (name) DO UPDATE
   SET status = 'active', host = excluded.host, capabilities = excluded.capabilities, last_heartbeat = now()
RETURNING id
"""


async def echo(payload: dict[str, Any]) -> object:
    return {"exit_code": 0, "stdout": str(payload.get("config")), "stderr": ""}


class StockWorker(AttuneService):
    """`id` is known after start(). `ran`: executions it finished. `held`: what it took and has not acked."""

    def __init__(
        self,
        amqp_url: str,
        database_url: str,
        *,
        name: str = "worker-shell",
        schema: str = "attune",
        ttl_ms: int = topology.DEFAULT_TTL_MS,
        max_concurrent_tasks: int = 10,
        heartbeat_seconds: float | None = None,
        run_action: RunAction = echo,
        pool: Database | None = None,
    ) -> None:
        super().__init__(amqp_url, database_url, schema=schema, pool=pool)
        self.name = name
        self.id = 0
        self.ran: list[int] = []
        self.held: list[AbstractIncomingMessage] = []
        self._ttl_ms = ttl_ms
        self._max_concurrent_tasks = max_concurrent_tasks
        self._heartbeat_seconds = heartbeat_seconds
        self._run_action = run_action
        self._permits = asyncio.Semaphore(max_concurrent_tasks)
        self._channel: AbstractChannel | None = None
        self._queue: AbstractQueue | None = None
        self._beating: asyncio.Task[None] | None = None

    async def _begin(self, channel: AbstractChannel) -> None:
        self.id = await self.database.session.fetchval(
            _REGISTER,
            self.name,
            "localhost",
            {"max_concurrent_executions": self._max_concurrent_tasks, "runtimes": ["shell"]},
        )
        await topology.declare_common(channel)
        await topology.declare_worker(channel, self.id, self._ttl_ms)
        self._channel = channel
        if self._heartbeat_seconds is not None:
            self.start_beating(self._heartbeat_seconds)

    async def heartbeat(self, *, age_seconds: float = 0) -> None:
        """One heartbeat; with an age, one that is that old already. Never touches the status."""
        await self.database.session.execute(
            "UPDATE worker SET last_heartbeat = now() - make_interval(secs => $2) WHERE id = $1",
            self.id,
            float(age_seconds),
        )

    def start_beating(self, interval_seconds: float) -> None:
        self._beating = asyncio.create_task(self._beat(interval_seconds), name=f"{self.name}-heartbeat")

    async def stop_beating(self) -> None:
        """All else stays: its connection, what it holds, what it runs. So looks a worker that hangs."""
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])

    async def consume(self) -> None:
        """Take dispatches and run them."""
        await self._consume_by(self._take)

    async def hang(self) -> None:
        """Take dispatches and sit on them: unacked, so their TTL does not run out while we live."""
        await self._consume_by(self._hold)

    async def stop(self, *, shutdown_seconds: float = 30) -> None:
        """Graceful: inactive first, no more heartbeats, then wait for what is running. The queues stay."""
        await self.database.session.execute("UPDATE worker SET status = 'inactive' WHERE id = $1", self.id)
        await self.stop_beating()
        try:
            async with asyncio.timeout(shutdown_seconds):
                for _ in range(self._max_concurrent_tasks):
                    await self._permits.acquire()
        except TimeoutError:
            pass  # as Attune: what still runs is abandoned
        await self._disconnect()

    async def vanish(self) -> None:
        """As after kill -9: the row stays active with its last heartbeat, unacked messages return."""
        await self.stop_beating()
        await self._disconnect()

    async def close(self) -> None:
        await self.vanish()

    async def _consume_by(self, receive: Callable[[AbstractIncomingMessage], Awaitable[None]]) -> None:
        if self._channel is None:
            raise RuntimeError(f"worker {self.name} is not running; call start() first")
        await self._channel.set_qos(prefetch_count=self._max_concurrent_tasks + 2, timeout=RPC_SECONDS)
        self._queue = await self._channel.declare_queue(
            topology.worker_queue(self.id), passive=True, timeout=RPC_SECONDS
        )
        await self._queue.consume(receive, consumer_tag=f"worker-{self.id}", timeout=RPC_SECONDS)

    async def _hold(self, message: AbstractIncomingMessage) -> None:
        self.held.append(message)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        try:
            payload = messages.read_envelope(message.body).payload
            execution_id, action_ref = int(payload["execution_id"]), str(payload["action_ref"])
        except (ValueError, KeyError, TypeError):
            await message.nack(requeue=False)
            return
        self.held.append(message)
        async with self._permits:
            await message.ack()  # before the work: a crash from here on loses the dispatch
            self.held.remove(message)
            await self._run(execution_id, action_ref, payload)

    async def _run(self, execution_id: int, action_ref: str, payload: dict[str, Any]) -> None:
        session = self.database.session
        row = await session.fetchrow("SELECT status, action FROM execution WHERE id = $1", execution_id)
        if row is None or row["status"] in {"cancelled", "canceling"}:
            return
        await session.execute(
            "UPDATE execution SET status = 'running', started_at = now() WHERE id = $1", execution_id
        )
        await self._announce_status(execution_id, action_ref, "scheduled", "running")
        try:
            result, status = await self._run_action(payload), "completed"
        except Exception as error:
            result, status = {"error": str(error)}, "failed"
        await session.execute(
            "UPDATE execution SET status = $2, result = $3 WHERE id = $1", execution_id, status, result
        )
        await self._announce_status(execution_id, action_ref, "running", status)
        await self.publisher.publish(
            messages.execution_completed(
                execution_id=execution_id,
                action_id=row["action"],
                action_ref=action_ref,
                status=status,
                result=result,
            )
        )
        self.ran.append(execution_id)

    async def _announce_status(self, execution_id: int, action_ref: str, before: str, after: str) -> None:
        await self.publisher.publish(
            messages.status_changed(
                execution_id=execution_id, action_ref=action_ref, previous_status=before, new_status=after
            )
        )

    async def _beat(self, interval_seconds: float) -> None:
        while True:
            await asyncio.sleep(interval_seconds)
            with contextlib.suppress(DatabaseError, OSError):  # as Attune: the next one may get through
                await self.heartbeat()
