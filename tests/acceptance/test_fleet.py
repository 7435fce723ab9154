"""A fleet that is lost by two thirds: every execution ends exactly once, and none that a live worker has is touched."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.worker import StockWorker
from tests.support.eventually import eventually
from tests.support.fleet import ACTION, HEARTBEAT_SECONDS, TASKS, WINDOW, Fleet, a_fleet, held_by
from tests.support.ledger import ended_once
from tests.support.sidecar import SidecarProcess
from tests.support.stock_world import StockWorld
from tests.support.tcp_proxy import TcpProxy

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
            await worker.vanish()
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
    assert set(executions) - (await world.auditor.notice_counts()).keys() == set()
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
