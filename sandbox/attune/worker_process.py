"""A worker as a process: its actions outlive a server that goes away, and end with it.

What runs while the database is away goes on; its end is written when it is back. What runs when the broker is lost goes
on too; its end is written, and never published (NO_RECONNECT; cured: when the broker is back). Asked to stop, it does
as Attune does: inactive, no more heartbeats, its consumer goes on, what runs gets some time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aio_pika.abc import AbstractChannel

from sandbox.attune import messages, topology
from sandbox.attune.amqp import PublishFailed
from sandbox.attune.database import DATABASE_AWAY, DATABASE_TROUBLE, Row, Session
from sandbox.attune.defects import Defect
from sandbox.attune.environment import Environment
from sandbox.attune.ignored_messages import consume_and_ignore, worker_queues
from sandbox.attune.log_line import PrintLine
from sandbox.attune.run_action import subprocess_runner
from sandbox.attune.worker import StockWorker

RETRY_SECONDS = 0.3
# A worker stops although the database does not answer.
DEREGISTER_SECONDS = 3.0
# Attune's pause between the last heartbeat and the wait for what runs.
SETTLE_SECONDS = 0.1

Answer = TypeVar("Answer")


class WorkerProcess(StockWorker):
    def __init__(self, environment: Environment, name: str, *, runtime: str, print_line: PrintLine) -> None:
        times = environment.times
        super().__init__(
            environment.amqp_url,
            environment.database_url,
            name=name,
            schema=environment.schema,
            ttl_ms=times.worker_queue_ttl_ms,
            heartbeat_seconds=environment.heartbeat_seconds,
            run_action=subprocess_runner(runtime, timeout_seconds=times.action_seconds),
            runtimes=(runtime,),
            queues=environment.worker_queues,
            cured=environment.cured,
            print_line=print_line,
            amqp_heartbeat_seconds=times.amqp_heartbeat_seconds,
        )
        self._shutdown_seconds = times.shutdown_seconds

    async def _begin(self, channel: AbstractChannel) -> None:
        await super()._begin(channel)
        await self.consume()
        await consume_and_ignore(channel, worker_queues(self.id), self._print_line)
        self._print_line(f"{self.name} is worker {self.id} and consumes {topology.worker_queue(self.id)}")

    async def _finish(self) -> None:
        self._print_line(f"asked to stop: inactive from now on; {len(self._running)} executions run")
        with contextlib.suppress(*DATABASE_TROUBLE):
            async with asyncio.timeout(DEREGISTER_SECONDS):
                await self._deregister()
        await self.stop_beating()
        await asyncio.sleep(SETTLE_SECONDS)
        await self._wait_for_what_runs(self._shutdown_seconds)
        self._print_line(f"stopped; {len(self._running)} executions are left behind")
        await self.die()

    def _session(self) -> Session:
        return _LastingSession(super()._session)

    async def _publish(self, message: messages.StockMessage) -> None:
        while True:
            try:
                await self.publish(message)
            except PublishFailed:
                if Defect.NO_RECONNECT not in self.cured:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return


class _LastingSession:
    """Asks again until the database answers. For statements that may be repeated."""

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session

    async def execute(self, query: str, *args: Any) -> str:
        return await _until_answered(lambda: self._session().execute(query, *args))

    async def fetch(self, query: str, *args: Any) -> list[Row]:
        return await _until_answered(lambda: self._session().fetch(query, *args))

    async def fetchrow(self, query: str, *args: Any) -> Row | None:
        return await _until_answered(lambda: self._session().fetchrow(query, *args))

    async def fetchval(self, query: str, *args: Any) -> Any:
        return await _until_answered(lambda: self._session().fetchval(query, *args))


async def _until_answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    while True:
        try:
            return await ask()
        except DATABASE_AWAY as error:
            if isinstance(error, ValueError):
                raise  # an argument that no database takes, however long it is asked
            await asyncio.sleep(RETRY_SECONDS)
