"""Rules §2 and §7: after a database outage every heartbeat looks old, and no execution of a live worker is failed.

The database is away for longer than a worker may be silent. Of three workers one comes back at once, one takes its
time, one has died meanwhile; to the sidecars they all look the same when the database answers again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from sandbox.attune.executor import Dispatch, StockExecutor
from sandbox.attune.worker import StockWorker
from sandbox.servers import PrivatePostgreSQL
from tests.crash.world import CrashWorld, bind_worker
from tests.support.auditor import ended_once
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy

UNAVAILABLE_AFTER_SECONDS = 5
AWAY_SECONDS = 8
HEARTBEAT_SECONDS = 0.5
TTL_MS = 1000
RUN, HELD = 3, 2
SCALED: dict[str, Any] = {
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "2",
    "monitor__interval_seconds": "1",
    "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": str(TTL_MS),
    "grace__after_ttl_seconds": "1",
    "worker__unavailable_after_seconds": str(UNAVAILABLE_AFTER_SECONDS),
    "monitor__confirm_after_seconds": "1",
    "pause__database_outage_seconds": "1",
}


class Crew:
    """Three workers, each with executions that it runs and others that it holds, until `finish` is set."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()
        self.workers: dict[str, StockWorker] = {}
        self.dispatches: dict[str, list[Dispatch]] = {}

    async def run_slowly(self, payload: dict[str, Any]) -> object:
        await self.finish.wait()
        return {"exit_code": 0}

    def executions_of(self, *names: str) -> list[int]:
        return [dispatch.execution_id for name in names for dispatch in self.dispatches[name]]


@pytest.mark.parametrize("how", ["killed", "frozen", "read_only"])
async def test_database_away_for_longer_than_the_limit_costs_no_live_worker_anything(
    world: CrashWorld, postgres: PrivatePostgreSQL, how: str
) -> None:
    async with (
        TcpProxy.to(world.database_url) as wire,
        a_crew(world, wire.url, "prompt", "tardy", "lost") as crew,
        world.sidecar("one", database=wire.url, **SCALED),
        world.sidecar("two", database=wire.url, **SCALED),
    ):
        running = [
            dispatch
            for name in ("prompt", "tardy")
            for dispatch in crew.dispatches[name]
            if await world.auditor.status(dispatch.execution_id) == "running"
        ]
        await crew.workers["tardy"].stop_beating()
        await crew.workers["lost"].die()
        async with database_away(how, postgres, wire):
            await world.dead_letter(running)
        answers_since = time.monotonic()

        # As long as it dares: so that the sidecars have met its old heartbeat, if they look that early.
        await eventually(
            lambda: letters_on_record(world, running, or_after=answers_since + UNAVAILABLE_AFTER_SECONDS / 2)
        )
        crew.workers["tardy"].start_beating(HEARTBEAT_SECONDS)
        # The sidecars believe in heartbeats again.
        await until(world, crew.executions_of("lost"), abandoned=RUN, failed=HELD)
        live = crew.executions_of("prompt", "tardy")
        assert await statuses(world, live) == {"running": 2 * RUN, "scheduled": 2 * HELD}
        await eventually(lambda: letters_on_record(world, running))
        assert await outcomes(world, running) == {"left_to_monitor": len(running)}

        crew.finish.set()
        await until(world, live, completed=2 * (RUN + HELD))
        executions = [*live, *crew.executions_of("lost")]
        await eventually(lambda: all_announced(world, executions))
        await ended_once(world.auditor, executions, may_repeat_completions=True)


@asynccontextmanager
async def a_crew(world: CrashWorld, database: str, *names: str) -> AsyncIterator[Crew]:
    crew = Crew()
    async with AsyncExitStack() as ends:
        executor = await ends.enter_async_context(StockExecutor(world.amqp_url, world.database_url))
        ends.callback(crew.finish.set)
        for name in names:
            worker = StockWorker(
                world.amqp_url,
                database,
                name=name,
                ttl_ms=TTL_MS,
                max_concurrent_tasks=RUN,
                heartbeat_seconds=HEARTBEAT_SECONDS,
                run_action=crew.run_slowly,
            )
            crew.workers[name] = await ends.enter_async_context(worker)
            await worker.consume()
            await bind_worker(world.amqp_url, worker.id)
            crew.dispatches[name] = await executor.schedule_many(RUN + HELD, worker.id)
        everything = crew.executions_of(*names)
        await until(world, everything, running=len(names) * RUN, scheduled=len(names) * HELD)
        yield crew


@asynccontextmanager
async def database_away(how: str, postgres: PrivatePostgreSQL, wire: TcpProxy) -> AsyncIterator[None]:
    """For longer than a worker may be silent.

    Killed: connections break. Frozen: they hang, and then go on. Read-only: it answers, and takes no heartbeat.
    """
    match how:
        case "killed":
            await postgres.kill()
        case "frozen":
            wire.freeze()
        case _:
            await set_read_only(postgres, "on")
    end = time.monotonic() + AWAY_SECONDS
    try:
        yield
        await eventually(lambda: time.monotonic() > end)
    finally:
        await postgres.start()
        await wire.heal()
        await set_read_only(postgres, "off")


async def set_read_only(postgres: PrivatePostgreSQL, value: str) -> None:
    await postgres.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    await postgres.execute("SELECT pg_reload_conf()")


async def statuses(world: CrashWorld, executions: Iterable[int]) -> dict[str, int]:
    rows = await world.sql(
        "SELECT status::text, count(*) FROM execution WHERE id = ANY ($1::bigint[]) GROUP BY status",
        list(executions),
    )
    return dict(rows)


async def until(world: CrashWorld, executions: Iterable[int], **wanted: int) -> None:
    async def is_so() -> bool:
        assert await statuses(world, executions) == wanted
        return True

    await eventually(is_so, timeout=60, every=0.1)


async def outcomes(world: CrashWorld, dispatches: Iterable[Dispatch]) -> dict[str, int]:
    rows = await world.sql(
        "SELECT outcome, count(*) FROM dlq_handler.letter WHERE execution_id = ANY ($1::bigint[]) GROUP BY outcome",
        [dispatch.execution_id for dispatch in dispatches],
    )
    return dict(rows)


async def letters_on_record(
    world: CrashWorld, dispatches: list[Dispatch], *, or_after: float = float("inf")
) -> bool:
    return time.monotonic() > or_after or sum((await outcomes(world, dispatches)).values()) == len(dispatches)


async def all_announced(world: CrashWorld, executions: Iterable[int]) -> bool:
    return set(executions) <= (await world.auditor.completion_counts()).keys()
