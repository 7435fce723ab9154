"""A fleet that is lost by two thirds: every execution ends exactly once, and none that a live worker has is touched."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dlq_handler.sandbox.attune.completion_listener import CompletionListener
from dlq_handler.sandbox.attune.scheduler import Scheduler
from dlq_handler.sandbox.attune.worker import StockWorker
from tests.acceptance.conftest import World
from tests.support.eventually import eventually
from tests.support.fleet import ACTION, TASKS, WINDOW, Fleet, a_fleet, held_by
from tests.support.ledger import ended_once
from tests.support.sidecar import SidecarProcess, sidecar_process

TTL_MS = 1500
LATER = 3
LINE = 40
# The limits of a real installation, in a few seconds: horizon 2.5 s, unavailable after 5.
SCALED: dict[str, Any] = {
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "2",
    "ATTUNE__EXECUTOR__TIMEOUT_CHECK_INTERVAL": "1",
    "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": str(TTL_MS),
    "grace__horizon_seconds": "1",
    "worker__unavailable_after_seconds": "5",
    "monitor__confirm_after_seconds": "1",
}


async def test_a_fleet_lost_by_two_thirds_ends_every_execution_once(world: World) -> None:
    async with (
        CompletionListener(world.amqp_url, world.database_url) as listener,
        a_fleet(world.executor, world.amqp_url, world.database_url, ttl_ms=TTL_MS) as fleet,
        a_replica(world, "one") as one,
        a_replica(world, "two") as two,
    ):
        lost = fleet.dead + fleet.hung
        slots = len(fleet.everybody) * WINDOW + len(lost) * LATER
        line = await fleet.admit(slots, line=LINE)

        await fleet.dispatch(fleet.live, each=TASKS)
        await fleet.dispatch(lost, each=WINDOW)
        await all_are_taken(fleet)
        await fleet.lose()
        # To the living first: whatever is ended of the lost, they have had theirs for longer.
        await fleet.dispatch(fleet.live, each=WINDOW - TASKS)
        await fleet.dispatch(lost, each=LATER)

        at_work = fleet.dead + fleet.hung_at_work
        run = TASKS * len(at_work)
        await until(fleet, at_work, abandoned=run, failed=len(at_work) * (WINDOW + LATER) - run)
        await until(fleet, fleet.hung_before_work, failed=len(fleet.hung_before_work) * (WINDOW + LATER))
        assert await fleet.statuses(fleet.live) == {
            "running": len(fleet.live) * TASKS,
            "scheduled": len(fleet.live) * (WINDOW - TASKS),
        }

        fleet.let_go()
        await until(fleet, fleet.live, completed=len(fleet.live) * WINDOW)
        await eventually(lambda: sorted(listener.promoted) == line)
        # It takes the dead and the hung for fresh still: what it sends there ends by its letter.
        async with Scheduler(world.amqp_url, world.database_url) as scheduler:
            await eventually(lambda: sorted(scheduler.dispatched) == line)
            await eventually(lambda: everything_has_ended(world, slots + LINE), timeout=60)

        held = held_by(fleet.hung)
        assert len(held) == len(fleet.hung) * WINDOW
        for worker in fleet.hung:
            await worker.vanish()
        await eventually(lambda: have_a_letter(world, held), timeout=60)

        await ended_once(world.auditor, [*fleet.executions_of(fleet.everybody), *line])
        assert await world.auditor.line(ACTION) == []
        for replica in (one, two):
            assert replica.is_running
            assert not replica.events("loop.crashed")


@asynccontextmanager
async def a_replica(world: World, name: str) -> AsyncIterator[SidecarProcess]:
    async with sidecar_process(
        world.folder, world.amqp_url, world.database_url, name=name, **SCALED
    ) as replica:
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
    await until(fleet, fleet.live, running=len(fleet.live) * TASKS)
    await until(fleet, at_work, running=len(at_work) * TASKS, scheduled=len(at_work) * (WINDOW - TASKS))
    await eventually(lambda: len(held_by(at_work)) == len(at_work) * (WINDOW - TASKS))
    await eventually(lambda: len(held_by(fleet.hung_before_work)) == len(fleet.hung_before_work) * WINDOW)


async def everything_has_ended(world: World, count: int) -> bool:
    ended = await world.auditor.terminal_rows()
    assert len(ended) == count
    notices = await world.auditor.notice_counts()
    assert notices.keys() == ended.keys()
    return True


async def have_a_letter(world: World, executions: list[int]) -> bool:
    """The messages that the hung held have died at last, and changed nothing."""
    letters = await world.sql(
        "SELECT execution_id, outcome FROM dlq_handler.letter WHERE execution_id = ANY ($1::bigint[])",
        executions,
    )
    assert Counter(map(tuple, letters)) == Counter((number, "already_terminal") for number in executions)
    return True
