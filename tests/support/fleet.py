"""Fifty stock workers in one process: a third dies, a third hangs with what it holds, a third lives and is slow.

Slow means for as long as the test likes: what the living run goes on until `let_go()`, so that it outlasts every limit
of the sidecar without anybody counting seconds. A few of the living look dead for a while. Every execution holds a
slot of one action; more wait in its line.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from sandbox.attune import messages
from sandbox.attune.database import Database
from sandbox.attune.executor import StockExecutor, admit_by_policy, claim, mark_scheduled
from sandbox.attune.work import RunAction
from sandbox.attune.worker import StockWorker
from tests.support.tcp_proxy import TcpProxy

ACTION = "core.fleet"
TASKS = 2
# A stock worker takes two more than it runs, and holds those unacknowledged.
WINDOW = TASKS + 2
# A busy machine must not make the living look dead: many fit into any limit of the sidecar.
HEARTBEAT_SECONDS = 0.5
# Of queues that were declared before somebody shortened the setting.
LONG_TTL_MS = 600_000
POOL_SIZE = 16


class Fleet:
    def __init__(self, executor: StockExecutor) -> None:
        self.dead: list[StockWorker] = []
        self.hung_at_work: list[StockWorker] = []
        """They run some, hold some, and never come to an end."""
        self.hung_before_work: list[StockWorker] = []
        """They take messages and start none of them, not even those that they acknowledged."""
        self.steady: list[StockWorker] = []
        self.faltering: list[StockWorker] = []
        """Their heartbeats stop with those of the lost, and begin again when the test says so."""
        self.resting: list[StockWorker] = []
        """Down for a restart: neither a heartbeat nor a consumer, and a long time to live in their queues."""
        self._executor = executor
        self._let_go = asyncio.Event()
        self._admitted: Iterator[int] = iter(())
        self._dispatched: dict[int, list[int]] = {}

    @property
    def hung(self) -> list[StockWorker]:
        return self.hung_at_work + self.hung_before_work

    @property
    def lost(self) -> list[StockWorker]:
        return self.dead + self.hung

    @property
    def live(self) -> list[StockWorker]:
        return self.steady + self.faltering + self.resting

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
            self._dispatched.setdefault(worker.id, []).extend(ids)
            for dispatch in await mark_scheduled(session, ids, worker.id):
                await self._executor.publisher.publish(dispatch.message)

    async def statuses(self, workers: Iterable[StockWorker]) -> Counter[str]:
        """In which statuses the executions are that were dispatched to them."""
        rows = await self._executor.database.session.fetch(
            "SELECT status, count(*) AS n FROM execution WHERE id = ANY ($1::bigint[]) GROUP BY status",
            self.executions_of(workers),
        )
        return Counter({row["status"]: row["n"] for row in rows})

    async def fall_silent(self) -> None:
        """All who are lost, and those who only seem to be."""
        for worker in self.lost + self.faltering + self.resting:
            await worker.stop_beating()
        for worker in self.hung_before_work:
            for message in worker.held[:TASKS]:
                await message.ack()
            del worker.held[:TASKS]

    def let_go(self) -> None:
        """What the living run comes to its end."""
        self._let_go.set()

    async def run_slowly(self, payload: dict[str, Any]) -> object:
        await self._let_go.wait()
        return {"exit_code": 0, "stdout": json.dumps(payload), "stderr": ""}


async def never_end(payload: dict[str, Any]) -> object:
    return await asyncio.get_running_loop().create_future()


def held_by(workers: Iterable[StockWorker]) -> list[int]:
    """The executions whose messages they took and have not acknowledged."""
    held = [message for worker in workers for message in worker.held]
    return [messages.read_envelope(message.body).payload["execution_id"] for message in held]


@asynccontextmanager
async def a_fleet(
    executor: StockExecutor, amqp_url: str, database_url: str, *, wire_of_the_dead: TcpProxy, ttl_ms: int
) -> AsyncIterator[Fleet]:
    """All are up and consume, but for the resting; the dead are up until their wire is cut."""
    async with AsyncExitStack() as ends:
        pool = await Database.open(database_url, max_size=POOL_SIZE)
        ends.push_async_callback(pool.close)
        fleet = Fleet(executor)

        async def start(
            group: list[StockWorker],
            count: int,
            name: str,
            run_action: RunAction,
            *,
            url: str = amqp_url,
            ttl_ms: int = ttl_ms,
        ) -> None:
            for number in range(count):
                worker = StockWorker(
                    url,
                    database_url,
                    name=f"{name}-{number}",
                    ttl_ms=ttl_ms,
                    max_concurrent_tasks=TASKS,
                    heartbeat_seconds=HEARTBEAT_SECONDS,
                    run_action=run_action,
                    pool=pool,
                )
                group.append(await ends.enter_async_context(worker))

        await start(fleet.dead, 17, "dead", never_end, url=wire_of_the_dead.url)
        await start(fleet.hung_at_work, 9, "hung-at-work", never_end)
        await start(fleet.hung_before_work, 8, "hung-before-work", never_end)
        await start(fleet.steady, 12, "steady", fleet.run_slowly)
        await start(fleet.faltering, 2, "faltering", fleet.run_slowly)
        await start(fleet.resting, 2, "resting", fleet.run_slowly, ttl_ms=LONG_TTL_MS)
        for worker in fleet.dead + fleet.hung_at_work + fleet.steady + fleet.faltering:
            await worker.consume()
        for worker in fleet.hung_before_work:
            await worker.hang()
        yield fleet
