"""Act 4: a worker is retired while work is dispatched to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox.attune import topology
from sandbox.attune.executor import StockExecutor
from sandbox.auditor.ledger import TERMINAL
from sandbox.demo.acts_1_to_3 import ECHO
from sandbox.demo.observed import numbers
from sandbox.demo.world import World
from sandbox.stage.first_error import raise_first_error
from sandbox.stage.programs import QUEUES_OF_A_FLOW, QUEUES_OF_ITS_OWN

RETIRED = "worker-shell"
_LATE_EVERY_SECONDS = 0.2


async def worker_is_retired(world: World) -> None:
    world.act(
        4,
        "A worker is retired",
        "Look at: work is dispatched to it even after its queues are deleted, and each execution ends.",
    )
    observed = world.observed
    worker_id = observed.workers[RETIRED]
    await _start_as_flow(world, worker_id)
    work = await world.ask_for("core.sleep", 16, seconds=1)
    await world.until(
        f"{RETIRED} runs some of it",
        lambda: bool(observed.in_status(observed.on_worker(work, RETIRED), "running", *TERMINAL)),
        part=RETIRED,
    )
    await world.sidecar_command("flows", "stop", RETIRED, "--no-wait", "--comment", "no longer needed")
    await world.until("it is cordoned", lambda: RETIRED in observed.cordoned)
    world.print_line("dlq-handler cordons it: the scheduler gives it no new work")
    async with _late_dispatches(world, worker_id) as late:
        await world.retire(RETIRED)
        queue = topology.worker_queue(worker_id)
        await world.until("its queues are deleted", lambda: queue not in observed.queues)
        before = len(late)
        world.print_line(f"its queues are deleted; {before} executions were dispatched to it meanwhile")
        # While its last heartbeat looks fresh, it may return: those executions are left to the monitor.
        await world.until(
            "a later dispatch is received from the retired queue",
            lambda: bool(observed.ended_by(late[before:], "letter")),
        )
    await world.until("all of it has ended", lambda: observed.are_settled(work + late))
    given = [*observed.on_worker(work, RETIRED), *late]
    for how, by in (
        ("ran", "worker"),
        ("from its queue, or from the retired queue, failed by dlq-handler", "letter"),
        ("from the retired queue while it might return, failed by dlq-handler's monitor", "monitor"),
    ):
        world.print_line(f"{how}: {numbers(observed.ended_by(given, by)) or 'none'}")
    # When it returns, it is a stock worker again.
    world.stage.change_settings(RETIRED, QUEUES_OF_ITS_OWN)


async def _start_as_flow(world: World, worker_id: int) -> None:
    world.stage.change_settings(RETIRED, QUEUES_OF_A_FLOW)
    with raise_first_error():
        async with asyncio.TaskGroup() as group:
            start = ("flows", "start", RETIRED, "--blueprint", "worker", "--param", f"id={worker_id}")
            group.create_task(world.sidecar_command(*start))
            group.create_task(world.start(RETIRED))
    world.print_line(f"dlq-handler owns the queues of {RETIRED} now, and the worker declares none")


@asynccontextmanager
async def _late_dispatches(world: World, worker_id: int) -> AsyncIterator[list[int]]:
    """From a scheduler that chose the worker before it was cordoned: one after the other while inside."""
    ids: list[int] = []
    done = asyncio.Event()

    async def dispatch(scheduler: StockExecutor) -> None:
        while not done.is_set():
            execution_id = await scheduler.create_execution(ECHO)
            await scheduler.schedule(execution_id, worker_id)
            ids.append(execution_id)
            await asyncio.sleep(_LATE_EVERY_SECONDS)

    async with StockExecutor(world.stage.amqp_url, world.stage.database_url) as scheduler:
        world.print_line("a slow scheduler chose it before that, and goes on to dispatch to it")
        with raise_first_error():
            async with asyncio.TaskGroup() as group:
                group.create_task(dispatch(scheduler), name="late dispatches")
                try:
                    yield ids
                finally:
                    done.set()
