"""Fifty stock workers in one process: a third dies, a third hangs with what it holds, a third lives and is slow.

Slow means for as long as the test likes: what the living run goes on until `let_go()`, so that it outlasts every limit
of the sidecar without anybody counting seconds. Every execution holds a slot of one action; more wait in its line.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from dlq_handler.sandbox.attune import messages
from dlq_handler.sandbox.attune.database import Database
from dlq_handler.sandbox.attune.executor import StockExecutor, admit_by_policy, claim, mark_scheduled
from dlq_handler.sandbox.attune.worker import RunAction, StockWorker
from tests.support.tcp_proxy import TcpProxy

ACTION = "core.fleet"
SIZE = 50
TASKS = 2
# A stock worker takes two more than it runs, and holds those unacknowledged.
WINDOW = TASKS + 2
# A busy machine must not make the living look dead: many fit into any limit of the sidecar.
HEARTBEAT_SECONDS = 0.5
POOL_SIZE = 16


class Fleet:
    def __init__(self, executor: StockExecutor, wire: TcpProxy) -> None:
        self.dead: list[StockWorker] = []
        self.hung: list[StockWorker] = []
        self.live: list[StockWorker] = []
        self._executor = executor
        self._wire = wire
        self._let_go = asyncio.Event()
        self._admitted: Iterator[int] = iter(())
        self._dispatched: dict[int, list[int]] = {}

    @property
    def hung_at_work(self) -> list[StockWorker]:
        """They run some, hold some, and never come to an end."""
        return self.hung[0::2]

    @property
    def hung_before_work(self) -> list[StockWorker]:
        """They take messages and start none of them, not even those that they acknowledged."""
        return self.hung[1::2]

    async def start(self, pool: Database, amqp_url: str, database_url: str, ttl_ms: int) -> None:
        def a_worker(number: int, url: str, run_action: RunAction) -> StockWorker:
            return StockWorker(
                url,
                database_url,
                name=f"worker-{number:02}",
                ttl_ms=ttl_ms,
                max_concurrent_tasks=TASKS,
                heartbeat_seconds=HEARTBEAT_SECONDS,
                run_action=run_action,
                pool=pool,
            )

        numbers = range(SIZE)
        self.dead = [a_worker(number, self._wire.url, never_ends) for number in numbers[0::3]]
        self.hung = [a_worker(number, amqp_url, never_ends) for number in numbers[1::3]]
        self.live = [a_worker(number, amqp_url, self._run_slowly) for number in numbers[2::3]]
        for worker in self.everybody:
            await worker.start()
        for worker in self.dead + self.hung_at_work + self.live:
            await worker.consume()
        for worker in self.hung_before_work:
            await worker.hang()

    async def close(self) -> None:
        self.let_go()
        for worker in self.everybody:
            await worker.close()

    @property
    def everybody(self) -> list[StockWorker]:
        return self.dead + self.hung + self.live

    def executions_of(self, workers: Iterable[StockWorker]) -> list[int]:
        return [number for worker in workers for number in self._dispatched.get(worker.id, [])]

    async def admit(self, count: int, *, line: int) -> list[int]:
        """So many executions get a slot, to be dispatched later; as many as `line` wait for one, and are returned."""
        await self._executor.ensure_action(ACTION, concurrency_limit=count)
        ids = [await self._executor.create_execution(ACTION) for _ in range(count + line)]
        async with self._executor.database.transaction() as session:
            admitted = [number for number in ids if await admit_by_policy(session, number)]
        assert admitted == ids[:count]
        self._admitted = iter(admitted)
        return ids[count:]

    async def dispatch(self, workers: Iterable[StockWorker], *, each: int) -> None:
        session = self._executor.database.session
        for worker in workers:
            ids = [next(self._admitted) for _ in range(each)]
            for number in ids:
                assert await claim(session, number)
            dispatches = await mark_scheduled(session, ids, worker.id)
            self._dispatched.setdefault(worker.id, []).extend(ids)
            for dispatch in dispatches:
                await self._executor.publisher.publish(dispatch.message)

    async def statuses(self, workers: Iterable[StockWorker]) -> Counter[str]:
        """In which statuses the executions are that were dispatched to them."""
        rows = await self._executor.database.session.fetch(
            "SELECT status, count(*) AS n FROM execution WHERE id = ANY ($1::bigint[]) GROUP BY status",
            self.executions_of(workers),
        )
        return Counter({row["status"]: row["n"] for row in rows})

    async def lose(self) -> None:
        """Without a goodbye: the connections of the dead break, the hung keep theirs, neither is heard of again."""
        for worker in self.hung_before_work:
            for message in list(worker.held[:TASKS]):
                await message.ack()
                worker.held.remove(message)
        for worker in self.dead + self.hung:
            await worker.stop_beating()
        await self._wire.refuse()

    def let_go(self) -> None:
        """What the living run comes to its end."""
        self._let_go.set()

    async def _run_slowly(self, payload: dict[str, Any]) -> object:
        await self._let_go.wait()
        return {"exit_code": 0, "stdout": json.dumps(payload), "stderr": ""}


async def never_ends(payload: dict[str, Any]) -> object:
    return await asyncio.get_running_loop().create_future()


def held_by(workers: Iterable[StockWorker]) -> list[int]:
    """The executions whose messages they took and have not acknowledged."""
    held = [message for worker in workers for message in worker.held]
    return [messages.read_envelope(message.body).payload["execution_id"] for message in held]


@asynccontextmanager
async def a_fleet(
    executor: StockExecutor, amqp_url: str, database_url: str, *, ttl_ms: int
) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as ends:
        pool = await Database.open(database_url, max_size=POOL_SIZE)
        ends.push_async_callback(pool.close)
        fleet = Fleet(executor, await ends.enter_async_context(TcpProxy.to(amqp_url)))
        ends.push_async_callback(fleet.close)
        await fleet.start(pool, amqp_url, database_url, ttl_ms)
        yield fleet
