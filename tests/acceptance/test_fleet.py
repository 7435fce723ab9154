"""A fleet that is lost by two thirds: every execution ends exactly once, and none that a live worker has is touched."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from sandbox.attune import messages
from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.database import Database
from sandbox.attune.executor import StockExecutor, admit_by_policy, claim, mark_scheduled
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.work import RunAction
from sandbox.attune.worker import StockWorker
from tests.support.auditor import ended_once
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess
from tests.support.stock_world import StockWorld
from tests.support.tcp_proxy import TcpProxy

ACTION = "core.fleet"
TASKS = 2
# A stock worker takes two more than it runs, and holds those unacknowledged.
WINDOW = TASKS + 2
# A busy machine must not make the living look dead: many fit into any limit of the sidecar.
HEARTBEAT_SECONDS = 0.5
# Of queues that were declared before the setting was shortened.
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


TTL_MS = 1500
LATER = 3
LINE = 40
# The limits of a real installation, in a few seconds: horizon 2.5 s, unavailable after 5.
SCALED: dict[str, Any] = {
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "2",
    "monitor__interval_seconds": "1",
    "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": str(TTL_MS),
    "grace__after_ttl_seconds": "1",
    "worker__unavailable_after_seconds": "5",
    # Time for a worker to be heard of between two looks, on a busy machine too.
    "monitor__confirm_after_seconds": "4",
}


@pytest.mark.usefixtures("admission_works")
async def test_fleet_lost_by_two_thirds_ends_every_execution_once_and_no_live_one_by_us(
    world: StockWorld,
) -> None:
    async with (
        TcpProxy.to(world.amqp_url) as wire,
        CompletionListener(world.amqp_url, world.database_url) as listener,
        a_fleet(
            world.executor, world.amqp_url, world.database_url, wire_of_the_dead=wire, ttl_ms=TTL_MS
        ) as fleet,
        a_replica(world, "one") as one,
        a_replica(world, "two") as two,
    ):
        with_more = fleet.steady + fleet.resting
        slots = (
            len(fleet.lost) * (WINDOW + LATER) + len(fleet.live) * TASKS + len(with_more) * (WINDOW - TASKS)
        )
        line = await fleet.admit(slots, line=LINE)
        await fleet.dispatch(fleet.live, each=TASKS)
        await fleet.dispatch(fleet.lost, each=WINDOW)
        await all_are_taken(fleet)

        await fleet.fall_silent()
        await wire.refuse()
        # To the living first: whatever is ended of the lost, the living have had theirs for longer.
        await fleet.dispatch(with_more, each=WINDOW - TASKS)
        await fleet.dispatch(fleet.lost, each=LATER)
        await faltering_twice(world, fleet)
        await lost_ones_have_ended(fleet)
        await live_ones_are_untouched(fleet)

        fleet.let_go()
        for worker in fleet.resting:
            worker.start_beating(HEARTBEAT_SECONDS)
            await worker.consume()
        await until(fleet, fleet.live, completed=len(fleet.executions_of(fleet.live)))

        await eventually(lambda: sorted(listener.promoted) == line)
        # It takes the lost for fresh still; what it sends them ends by its letter.
        async with Scheduler(world.amqp_url, world.database_url):
            everything = fleet.executions_of(fleet.lost + fleet.live) + line
            await eventually(lambda: all_announced(world, everything), timeout=60, every=0.1)
        await eventually(lambda: all_slots_are_free(world))

        held = held_by(fleet.hung)
        assert len(held) == len(fleet.hung) * WINDOW
        for worker in fleet.hung:
            await worker.die()
        await eventually(lambda: have_died_in_vain(world, held), timeout=60, every=0.1)

        await ended_once(world.auditor, everything)
        for replica in (one, two):
            assert replica.is_running
            assert not replica.events("loop.crashed")


@asynccontextmanager
async def a_replica(world: StockWorld, name: str) -> AsyncIterator[SidecarProcess]:
    async with world.sidecar(name=name, **SCALED) as replica:
        try:
            yield replica
        except BaseException:
            # pytest shows it with the failure.
            print(f"--- the end of {name}'s log\n{replica.log_text()[-8000:]}")
            raise


async def until(fleet: Fleet, workers: list[StockWorker], **statuses: int) -> None:
    """So many of the executions dispatched to these workers are in each of these statuses, and none in another."""

    async def is_so() -> bool:
        assert await fleet.statuses(workers) == statuses
        return True

    await eventually(is_so, timeout=60, every=0.1)


async def all_are_taken(fleet: Fleet) -> None:
    """What was dispatched is with its worker: run as far as it has hands, the rest held unacknowledged."""
    at_work = fleet.dead + fleet.hung_at_work
    await until(fleet, at_work, running=len(at_work) * TASKS, scheduled=len(at_work) * (WINDOW - TASKS))
    up = fleet.steady + fleet.faltering
    await until(fleet, up, running=len(up) * TASKS)
    await eventually(lambda: len(held_by(at_work)) == len(at_work) * (WINDOW - TASKS))
    await eventually(lambda: len(held_by(fleet.hung_before_work)) == len(fleet.hung_before_work) * WINDOW)


async def faltering_twice(world: StockWorld, fleet: Fleet) -> None:
    """Found unavailable, a sign of life, found unavailable again: never twice with one heartbeat."""
    ids = [worker.id for worker in fleet.faltering]

    async def are_suspected() -> bool:
        suspected = await world.sql(
            "SELECT FROM dlq_handler.worker_observation look JOIN worker ON worker.id = look.worker_id"
            " WHERE worker.id = ANY ($1::bigint[]) AND look.unavailable_since IS NOT NULL"
            " AND look.last_heartbeat = worker.last_heartbeat",
            ids,
        )
        assert await fleet.statuses(fleet.faltering) == {"running": len(ids) * TASKS}
        return len(suspected) == len(ids)

    await eventually(are_suspected, timeout=60, every=0.1)
    for worker in fleet.faltering:
        await worker.heartbeat()
    await eventually(are_suspected, timeout=60, every=0.1)
    for worker in fleet.faltering:
        await worker.heartbeat()
        worker.start_beating(HEARTBEAT_SECONDS)


async def lost_ones_have_ended(fleet: Fleet) -> None:
    at_work = fleet.dead + fleet.hung_at_work
    run = len(at_work) * TASKS
    await until(fleet, at_work, abandoned=run, failed=len(fleet.executions_of(at_work)) - run)
    before_work = fleet.hung_before_work
    await until(fleet, before_work, failed=len(fleet.executions_of(before_work)))


async def live_ones_are_untouched(fleet: Fleet) -> None:
    steady, resting = len(fleet.steady), len(fleet.resting)
    assert await fleet.statuses(fleet.steady) == {
        "running": steady * TASKS,
        "scheduled": steady * (WINDOW - TASKS),
    }
    assert await fleet.statuses(fleet.faltering) == {"running": len(fleet.faltering) * TASKS}
    assert await fleet.statuses(fleet.resting) == {"scheduled": resting * WINDOW}


async def all_announced(world: StockWorld, executions: list[int]) -> bool:
    assert set(executions) - (await world.auditor.completion_counts()).keys() == set()
    return True


async def all_slots_are_free(world: StockWorld) -> bool:
    return await world.auditor.line(ACTION) == []


async def have_died_in_vain(world: StockWorld, executions: list[int]) -> bool:
    """The messages that the hung held are letters at last, and have changed nothing."""
    letters = await world.sql(
        "SELECT execution_id, outcome FROM dlq_handler.letter WHERE execution_id = ANY ($1::bigint[])",
        executions,
    )
    assert Counter(map(tuple, letters)) == Counter((number, "already_terminal") for number in executions)
    return True
