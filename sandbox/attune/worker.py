"""A stock Attune worker: registers by name, owns three queues, runs dispatches, is lost in every known way.

Its queues may belong to a flow instead: then it declares nothing, and is inactive until they exist. As soon as it is
active, Attune dispatches to it, and a dispatch to a missing queue is lost (D21).

Its defects are kept: it acks before it works (D9), writes `running` over everything but a cancellation (D8),
and its heartbeat never makes an inactive worker active again (D10). Each can be cured.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Unpack, assert_never

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from sandbox.attune import messages, topology, work
from sandbox.attune.amqp import BROKER_AWAY, RPC_SECONDS
from sandbox.attune.database import DATABASE_TROUBLE, Session
from sandbox.attune.defects import Defect
from sandbox.attune.service import AttuneService, Wiring
from sandbox.attune.work import RunAction

_REGISTER = """
INSERT INTO worker (name, worker_type, worker_role, host, status, capabilities, last_heartbeat)
VALUES ($1, 'local', 'action', $2, $4::text::worker_status, $3, now())
ON CONFLICT (name) DO UPDATE
   SET status = excluded.status, host = excluded.host, capabilities = excluded.capabilities, last_heartbeat = now()
RETURNING id
"""


async def echo(payload: dict[str, Any]) -> object:
    return {"exit_code": 0, "stdout": str(payload.get("config")), "stderr": ""}


class StockWorker(AttuneService):
    """`id` is known after start(). `ran`: executions it finished. `held`: what it took and has not begun."""

    role = "worker"

    def __init__(
        self,
        amqp_url: str,
        database_url: str,
        *,
        name: str = "worker-shell",
        ttl_ms: int = topology.DEFAULT_TTL_MS,
        max_concurrent_tasks: int = 10,
        heartbeat_seconds: float | None = None,
        run_action: RunAction = echo,
        runtimes: Sequence[str] = ("shell",),
        queues: topology.WorkerQueues = topology.WorkerQueues.OWN,
        **wiring: Unpack[Wiring],
    ) -> None:
        wiring.setdefault("connection_name", name)
        super().__init__(amqp_url, database_url, **wiring)
        self.name = name
        self.id = 0
        self.ran: list[int] = []
        self.held: list[AbstractIncomingMessage] = []
        self._is_active = False
        """Only of one whose queues belong to a flow."""
        self._ttl_ms, self._queues = ttl_ms, queues
        self._max_concurrent_tasks = max_concurrent_tasks
        self._heartbeat_seconds = heartbeat_seconds
        self._runner = work.ActionRunner(
            session=self._session,
            publish=self._publish,
            run_action=run_action,
            cured=self.cured,
            print_line=self._print_line,
        )
        self._runtimes = list(runtimes)
        self._permits = asyncio.Semaphore(max_concurrent_tasks)
        self._channel: AbstractChannel | None = None
        self._queue: AbstractQueue | None = None
        self._beating: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._unacked: dict[int, AbstractIncomingMessage] = {}

    async def _begin(self, channel: AbstractChannel) -> None:
        match self._queues:
            case topology.WorkerQueues.OWN:
                if not self.id:
                    self.id = await self._register("active")
                await topology.declare_common(channel)
                await topology.declare_worker(channel, self.id, self._ttl_ms)
            case topology.WorkerQueues.FLOW:
                await self._await_flow(channel)
            case _:
                assert_never(self._queues)
        if Defect.D1 in self.cured:
            await topology.bind_dead_letters(channel, self.id)
        self._channel = channel
        if self._heartbeat_seconds is not None and self._beating is None:
            self.start_beating(self._heartbeat_seconds)

    async def _await_flow(self, channel: AbstractChannel) -> None:
        if not self.id:
            self.id = await self._register("inactive")
        await topology.check_worker_queues(channel, self.id)
        if not self._is_active:
            await self._register("active")
            self._is_active = True

    async def _register(self, status: str) -> int:
        capabilities = {
            "max_concurrent_executions": self._max_concurrent_tasks,
            "worker_version": "reference",
            "runtimes": self._runtimes,
        }
        worker_id: int = await self.database.session.fetchval(
            _REGISTER, self.name, "localhost", capabilities, status
        )
        return worker_id

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
        await self._deregister()
        await self.stop_beating()
        await self._wait_for_what_runs(shutdown_seconds)
        await self.die()

    async def die(self) -> None:
        """As after kill -9: the row stays active with its last heartbeat, unacked messages return."""
        await self.stop_beating()
        # First of all: what runs leaves hands free when it is dropped, and they would take up what waits for them.
        await self._hang_up()
        await self._drop_what_runs()
        await self._disconnect()

    async def close(self) -> None:
        await self.die()

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
        taken = work.read_dispatch(message.body)
        if taken is None:
            await message.nack(requeue=False)
            return
        if taken.execution_id in self._unacked:
            # The broker hands it out again after it lost us, and it is still under way here.
            self._unacked[taken.execution_id] = message
            return
        self.held.append(message)
        try:
            await self._permits.acquire()
        finally:
            self.held.remove(message)
        try:
            if Defect.D9 in self.cured:
                self._unacked[taken.execution_id] = message
            else:
                await message.ack()  # before the work: a crash from here on loses the dispatch
        except BaseException:
            self._permits.release()
            raise
        # A task of its own, as aio-pika cancels a callback when its connection is lost, and the action runs on.
        task = asyncio.create_task(self._work(taken), name=f"execution-{taken.execution_id}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _work(self, taken: work.Taken) -> None:
        try:
            if await self._runner.run(taken):
                self.ran.append(taken.execution_id)
        except (*BROKER_AWAY, *DATABASE_TROUBLE) as error:
            self._print_line(f"execution {taken.execution_id} is lost: {type(error).__name__}: {error}")
        finally:
            self._permits.release()
        message = self._unacked.pop(taken.execution_id, None)
        if message is not None:
            with contextlib.suppress(*BROKER_AWAY):
                await message.ack()

    def _session(self) -> Session:
        return self.database.session

    async def _publish(self, message: messages.StockMessage) -> None:
        await self.publisher.publish(message)

    async def _deregister(self) -> None:
        await self.database.session.execute("UPDATE worker SET status = 'inactive' WHERE id = $1", self.id)

    async def _wait_for_what_runs(self, seconds: float) -> None:
        """As Attune: what still runs then is abandoned. Nothing is begun any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for _ in range(self._max_concurrent_tasks):
                    await self._permits.acquire()

    async def _drop_what_runs(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _beat(self, interval_seconds: float) -> None:
        while True:
            await asyncio.sleep(interval_seconds)
            with contextlib.suppress(*DATABASE_TROUBLE):  # as Attune: the next one may get through
                await self._report()

    async def _report(self) -> None:
        await self.heartbeat()
        if Defect.D10 in self.cured:
            await self.database.session.execute(
                "UPDATE worker SET status = 'active' WHERE id = $1 AND status = 'inactive'", self.id
            )
