"""The story in three acts: stock Attune loses its letters; the sidecar comes; letters end, announced and on record.

What is claimed at the end is counted by the auditor (its own queue, its own SQL), not by the sidecar.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dlq_handler.sandbox.attune import schema, topology
from dlq_handler.sandbox.attune.auditor import Auditor
from dlq_handler.sandbox.attune.executor import Dispatch, StockExecutor
from dlq_handler.sandbox.attune.worker import StockWorker
from dlq_handler.sandbox.demo.telling import Kept, Teller
from dlq_handler.sandbox.servers import Servers
from dlq_handler.sandbox.servers.owned_process import OwnedProcess
from dlq_handler.sandbox.servers.ports import free_port
from dlq_handler.sandbox.surroundings import surroundings

TTL_MS = 3000
EXECUTIONS = 8
DEAD_LETTER_QUEUE = "attune.dlx.queue"


async def tell_story(teller: Teller, log: Path, *, patience_seconds: float) -> bool:
    teller.line("looking for RabbitMQ and PostgreSQL (the first time they may have to be fetched)")
    async with Servers.find(say=teller.line) as servers:
        name = f"demo_{uuid.uuid4().hex[:8]}"
        amqp_url = await servers.rabbitmq.create_vhost(name)
        database_url = await servers.postgresql.create_database(name)
        try:
            await schema.install(database_url)
            teller.line("a stock Attune is set up: its tables, triggers, exchanges and queues")
            async with (
                StockExecutor(amqp_url, database_url) as executor,
                Auditor(amqp_url, database_url) as auditor,
            ):
                world = World(
                    amqp_url=amqp_url,
                    database_url=database_url,
                    executor=executor,
                    auditor=auditor,
                    patience_seconds=patience_seconds,
                )
                return await _acts(teller, log, world)
        finally:
            # The servers may be somebody's own: leave them as they were found.
            await servers.rabbitmq.delete_vhost(name)
            await servers.postgresql.drop_database(name)


class StoryBroken(Exception):
    """The story cannot be told to its end; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    amqp_url: str
    database_url: str
    executor: StockExecutor
    auditor: Auditor
    patience_seconds: float


async def _acts(teller: Teller, log: Path, world: World) -> bool:
    amqp_url, database_url, executor, auditor = (
        world.amqp_url,
        world.database_url,
        world.executor,
        world.auditor,
    )
    teller.act("Act 1: stock Attune alone, without dlq-handler")
    worker = await _vanished_worker(teller, amqp_url, database_url, "worker-shell")
    lost = await _dispatch(teller, executor, worker)
    arrived = await _after_expiry(amqp_url, worker.id)
    hanging = (await auditor.statuses())["scheduled"]
    teller.line(
        f"all of them expired; {DEAD_LETTER_QUEUE} received {arrived}; {hanging} executions hang in 'scheduled'"
    )

    teller.act("Act 2: dlq-handler starts beside it")
    async with _sidecar(amqp_url, database_url, log) as http_port:
        teller.line(f"dlq-handler is ready: http://127.0.0.1:{http_port}/readyz")
        teller.line("it bound the dead-letter queue to each worker's exact key; nothing was redeclared")
        await topology.verify_redeclare(amqp_url, {worker.id: TTL_MS})
        teller.line("Attune's own declares still succeed")

        teller.act("Act 3: the same loss again")
        dispatched = await _dispatch(teller, executor, worker)
        late = await _vanished_worker(teller, amqp_url, database_url, "worker-python")
        dispatched += await _dispatch(teller, executor, late)
        await _watch(teller, world, [dispatch.execution_id for dispatch in dispatched])

    notices = await auditor.notice_counts()
    results = [await auditor.result(dispatch.execution_id) for dispatch in dispatched]
    statuses = await auditor.statuses()
    return teller.table(
        [
            Kept(
                promise="stock Attune alone: letters that arrived",
                expected=0,
                seen=arrived,
                look="ready in attune.dlx.queue",
            ),
            Kept(
                promise="with dlq-handler: executions ended as failed",
                expected=len(dispatched),
                seen=statuses["failed"],
                look="status in attune.execution",
            ),
            Kept(
                promise="each with the words of Attune",
                expected={"Worker queue TTL expired"},
                seen={(result or {}).get("error") for result in results},
                look="result.error in attune.execution",
            ),
            Kept(
                promise="each announced exactly once",
                expected=len(dispatched),
                seen=sum(1 for dispatch in dispatched if notices[dispatch.execution_id] == 1),
                look="a queue of the auditor's own on execution.completed",
            ),
            Kept(
                promise="letters still waiting",
                expected=0,
                seen=await topology.ready_count(amqp_url, DEAD_LETTER_QUEUE),
                look="ready in attune.dlx.queue",
            ),
            Kept(
                promise="lost before it came, and not touched",
                expected=len(lost),
                seen=statuses["scheduled"],
                look="status in attune.execution; the monitor ends them at its horizon",
            ),
        ]
    )


async def _vanished_worker(teller: Teller, amqp_url: str, database_url: str, name: str) -> StockWorker:
    worker = StockWorker(amqp_url, database_url, name=name, ttl_ms=TTL_MS)
    await worker.start()
    await worker.vanish()
    teller.line(
        f"{name} registers as worker {worker.id}, declares its queue (TTL {TTL_MS / 1000:g} s), and dies"
    )
    return worker


async def _dispatch(teller: Teller, executor: StockExecutor, worker: StockWorker) -> list[Dispatch]:
    dispatched = await executor.schedule_many(EXECUTIONS, worker.id)
    first, last = dispatched[0].execution_id, dispatched[-1].execution_id
    teller.line(f"executions {first} to {last} are dispatched to worker {worker.id}, which is gone")
    return dispatched


async def _after_expiry(amqp_url: str, worker_id: int) -> int:
    """Wait until the worker's queue is empty; how many letters arrived in the dead-letter queue."""
    queue = topology.worker_queue(worker_id)

    async def is_empty() -> bool:
        return await topology.ready_count(amqp_url, queue) == 0

    if not await _until(is_empty, seconds=TTL_MS / 1000 + 30):
        raise StoryBroken(
            f"the messages in {queue} did not expire: the broker is slow, or somebody took them"
        )
    return await topology.ready_count(amqp_url, DEAD_LETTER_QUEUE)


async def _watch(teller: Teller, world: World, ids: list[int]) -> None:
    """Tell of each execution as it ends and as its notice arrives."""
    auditor = world.auditor
    ended: set[int] = set()
    announced: set[int] = set()

    async def all_told() -> bool:
        failed = {number for number in ids if await auditor.status(number) == "failed"}
        if failed - ended:
            teller.line(f"failed: executions {_numbers(failed - ended)}")
            ended.update(failed)
        heard = set(await auditor.notice_counts())
        if heard - announced:
            teller.line(f"announced: execution.completed for {_numbers(heard - announced)}")
            announced.update(heard)
        return set(ids) <= ended & announced

    await _until(all_told, seconds=world.patience_seconds)


@asynccontextmanager
async def _sidecar(amqp_url: str, database_url: str, log: Path) -> AsyncIterator[int]:
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="dlq-handler-sidecar-"))
    process = OwnedProcess(
        [sys.executable, "-m", "dlq_handler", "run"],
        environment=surroundings(
            {
                "ATTUNE__MESSAGE_QUEUE__URL": amqp_url,
                "ATTUNE__DATABASE__URL": database_url,
                "ATTUNE__DLQ_HANDLER__HTTP__HOST": "127.0.0.1",
                "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(port),
                "ATTUNE__DLQ_HANDLER__INSTANCE_NAME": "demo",
            }
        ),
        log=log,
        folder=folder,
    )

    async def is_ready() -> bool:
        if not process.is_running:
            raise StoryBroken(f"the sidecar ended; the end of its log:\n{process.log_tail()}")
        return await _answers_ready(port)

    try:
        if not await _until(is_ready, seconds=60):
            raise StoryBroken(
                f"the sidecar is not ready after 60 s; the end of its log:\n{process.log_tail()}"
            )
        yield port
    finally:
        try:
            await process.stop(signal.SIGTERM)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


async def _answers_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        status = await reader.readline()
        writer.close()
    except OSError:
        return False
    return b" 200 " in status


async def _until(check: Callable[[], Awaitable[bool]], *, seconds: float) -> bool:
    """False when it did not come true in time."""
    end = time.monotonic() + seconds
    while not await check():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.1)
    return True


def _numbers(ids: set[int]) -> str:
    """1, 2, 3, 5 as "1-3, 5"."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
