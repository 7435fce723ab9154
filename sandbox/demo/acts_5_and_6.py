"""Acts 5 and 6: everything breaks, the sidecar included, and work flows again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox.attune.database import Database
from sandbox.auditor.ledger import TERMINAL
from sandbox.demo.act_4 import RETIRED
from sandbox.demo.acts_1_to_3 import ECHO, SLOW
from sandbox.demo.observed import numbers
from sandbox.demo.world import DemoFailed, World
from sandbox.stage.parts import WORKERS
from sandbox.stage.programs import INTAKE_QUEUE


async def everything_breaks(world: World) -> None:
    world.act(5, "Everything breaks", "Look at: what is killed, and that every execution ends nevertheless.")
    await _lose_workers_and_sidecar(world)
    await _lose_the_servers(world)


async def _lose_workers_and_sidecar(world: World) -> None:
    observed = world.observed
    await world.start("worker-shell", "worker-python")
    await world.until("the worker that was retired gets work again", lambda: RETIRED not in observed.cordoned)
    world.print_line(f"{RETIRED} has returned: dlq-handler bound its queues again and ended the cordon")
    running = await world.ask_for("core.sleep", 3, seconds=8)
    await world.until(
        "each worker runs something",
        lambda: len(observed.in_status(running, "running")) == 3,
        part="executor",
    )
    await world.kill("worker-shell")
    await world.hang("worker-python")
    batch = await world.ask_for(ECHO, 36)
    await world.until(
        "all are dispatched",
        lambda: len(observed.in_status(batch, "scheduled", "running", *TERMINAL)) == len(batch),
        part="executor",
    )
    lost = observed.in_status(observed.on_worker(batch, "worker-shell"), "scheduled")
    # Those that expire last, so that none of them is over before we are there.
    async with _locked(world, lost[-max(1, len(lost) // 3) :]) as locked:
        if not locked:
            raise DemoFailed("all rows were over before one could be locked", world.stage.log("executor"))
        world.print_line(
            f"another session's open transaction locks {numbers(locked)}: their letters cannot be decided yet"
        )
        others = [number for number in batch + running if number not in locked]
        await world.until("all others come to an end", lambda: observed.are_settled(others))
        held = observed.on_worker(batch, "worker-python")
        by_letter, by_monitor = observed.ended_by(held, "letter"), observed.ended_by(held, "monitor")
        # Whichever is quicker: the broker to give the worker up, or the monitor's horizon.
        if by_letter:
            world.print_line(
                "held by the worker that hangs, and dead-lettered when the broker closed its connection: "
                f"{numbers(by_letter)}"
            )
        if by_monitor:
            world.print_line(
                f"held by the worker that hangs, and ended by the monitor: {numbers(by_monitor)}"
            )
        abandoned = observed.in_status(running, "abandoned")
        world.print_line(
            f"lost while running, so without a letter, and abandoned by the monitor: {numbers(abandoned)}"
        )
        await _kill_sidecar_at_work(world, batch, locked)
    await world.start("sidecar")
    await world.until("the letters it had not decided are decided", lambda: observed.are_settled(locked))

    world.print_line(
        "worker-python is killed before it wakes: a stock worker would run executions that have ended (defect D8)"
    )
    await world.kill("worker-python")
    await world.until("what it held dies, and is settled", lambda: not any(observed.queues.values()))


async def _kill_sidecar_at_work(world: World, batch: list[int], locked: list[int]) -> None:
    """While it holds letters that it cannot decide, as their rows are locked."""
    await world.until(
        "it holds the letters of the locked ones", lambda: not _ready(world, "worker-shell", INTAKE_QUEUE)
    )
    decided = len(world.observed.ended_by(batch, "letter"))
    world.print_line(
        f"{decided} dead letters decided, {len(locked)} delivered and undecided: dlq-handler is killed"
    )
    await world.kill("sidecar")
    await world.until(
        "its letters go back to the queue", lambda: _ready(world, INTAKE_QUEUE) >= len(locked), part="broker"
    )
    world.print_line(f"the {len(locked)} letters are back in {INTAKE_QUEUE}: nothing was lost")


async def _lose_the_servers(world: World) -> None:
    observed = world.observed
    await world.start("worker-shell")
    await world.kill("worker-shell")
    batch = await world.ask_for(ECHO, 12)
    await world.until(
        "those of the living worker are done, the others wait for the dead one",
        lambda: (
            len(observed.over(batch)) + len(observed.in_status(batch, "scheduled")) == len(batch)
            and observed.are_settled(observed.on_worker(batch, "worker-node"))
        ),
        part="worker-node",
    )
    lost = observed.on_worker(batch, "worker-shell")
    await world.kill("broker", "database", "worker-node")
    await world.start("broker", "database")
    await world.until("what expired meanwhile is ended and announced", lambda: observed.are_settled(batch))
    world.print_line(f"{numbers(lost)} ended nevertheless; the sidecar connected again by itself")
    world.print_line(
        "Attune's services never connect again: they run without consumers until an operator restarts them"
    )
    await world.restart("api", "executor")


async def work_flows(world: World) -> None:
    world.act(6, "The workers return", "Look at: completed goes up, and nothing else does.")
    observed = world.observed
    await world.start(*WORKERS)
    work = await world.ask_for(SLOW, 6, seconds=0.5) + await world.ask_for(ECHO, 15)
    await world.until(
        "all of it is done",
        lambda: observed.are_settled(work) and len(observed.in_status(work, "completed")) == len(work),
        part="executor",
    )
    await world.until(
        "nothing is left anywhere", lambda: not any(observed.queues.values()) and not observed.line
    )
    world.print_line(f"all {len(work)} are completed, and no execution waits")


def _ready(world: World, *names: str) -> int:
    """Messages in queues, or in the queues of workers."""
    observed = world.observed
    queues = [
        f"worker.{observed.workers[name]}.executions" if name in observed.workers else name for name in names
    ]
    return sum(observed.queues.get(queue, 0) for queue in queues)


@asynccontextmanager
async def _locked(world: World, ids: list[int]) -> AsyncIterator[list[int]]:
    """Locks those of the rows that are still open, as the long transaction of another session does."""
    database = await Database.open(world.stage.database_url, max_size=1)
    try:
        async with database.transaction() as session:
            rows = await session.fetch(
                "SELECT id FROM execution WHERE id = ANY($1::bigint[]) AND status = 'scheduled' FOR UPDATE",
                ids,
            )
            yield sorted(row["id"] for row in rows)
    finally:
        await database.close()
