"""Acts 1 to 3: Attune alone loses requests, dlq-handler brings them back, and dead letters are decided."""

from sandbox.demo.observed import numbers
from sandbox.demo.world import World

ECHO, SLOW = "core.echo", "core.slow"


async def attune_alone(world: World) -> list[int]:
    """The executions that wait for ever in the end, in the order of their ids."""
    world.act(
        1,
        "Stock Attune, alone",
        "Look at: its monitor ends the plain case, then requests are lost and the line of core.slow stands still.",
    )
    observed = world.observed
    world.print_line(
        "one defect is cured in this demo (D15): with it no action with a concurrency limit ever runs"
    )
    await world.start("api", "executor", "worker-shell", "worker-python")
    warm = await world.ask_for(ECHO, 3)
    await world.until(
        "work flows while workers are available", lambda: observed.are_settled(warm), part="worker-shell"
    )

    await world.kill("worker-shell", "worker-python")
    # At once: for a while their last heartbeats still look fresh, and the scheduler dispatches to them.
    slow = await world.ask_for(SLOW, 4, seconds=1)
    echoes = await world.ask_for(ECHO, 6)
    everything = slow + echoes

    def dispatched() -> list[int]:
        return observed.in_status(everything, "scheduled")

    # All but those that wait in line for the two slots of core.slow.
    await world.until(
        "all are dispatched to the dead workers",
        lambda: len(dispatched()) == len(everything) - 2,
        part="executor",
    )
    hanging = dispatched()
    # Seen, not counted from their ids: requests of the same moment reach the scheduler in any order.
    in_line = [number for number in slow if number not in hanging]
    await world.until(
        "Attune's own monitor ends them",
        lambda: len(observed.ended_by(hanging, "execution_timeout_monitor")) == len(hanging),
        part="executor",
    )
    world.print_line(
        f"Attune's own timeout monitor ended all {len(hanging)}: with real times after 328-344 s. "
        f"Dead letters in attune.dlx.queue: {observed.queues['attune.dlx.queue']}"
    )

    # Returned once to wait in line, and again because no worker is available: only then is its request lost. A worker
    # that is started earlier would run it.
    await world.until(
        "the next in line are requested while no worker is available",
        lambda: all(observed.executions[number].given_back > 1 for number in in_line),
        part="executor",
    )
    await world.start("worker-node")
    fresh = await world.ask_for(ECHO, 1)
    await world.until("a new worker works", lambda: observed.are_settled(fresh), part="worker-node")
    behind = await world.ask_for(SLOW, 1, seconds=1)
    await world.until(
        "one more waits in line",
        lambda: [number for number, status in observed.line if status == "queued"] == behind,
        part="executor",
    )
    world.print_line(
        f"the requests of {numbers(in_line)} were lost (defect D6): with a worker back they still wait, and hold both "
        f"slots of core.slow; {numbers(behind)} waits behind them. Attune's supervisor would end them after two hours"
    )
    return in_line + behind


async def requests_are_repeated(world: World, waiting: list[int]) -> None:
    world.act(
        2,
        "dlq-handler starts",
        "Look at: lost requests are repeated, slots become free, the line moves again.",
    )
    observed = world.observed
    world.print_line(
        "as the docs advise, Attune's own monitor is switched off: it also fails work that then runs (D12)"
    )
    await world.restart_executor_without_monitor()
    observed.lost.update(observed.in_status(waiting, "requested"))
    await world.start("sidecar")
    world.print_line(
        "dlq-handler is ready. It changed nothing of Attune: a queue of its own, bound to each worker's key"
    )
    world.print_line(f"its dashboard, for as long as the demo lasts: {world.stage.ui_url}")
    await world.until(
        "the lost requests are repeated, and the line moves", lambda: observed.are_settled(waiting)
    )
    world.print_line(f"{numbers(waiting)} have run on worker-node")


async def letters_arrive(world: World) -> None:
    world.act(
        3,
        "Workers are killed again",
        "Look at: dead letters arrive; each is decided and its completion published within a second.",
    )
    observed = world.observed
    await world.start("worker-shell", "worker-python")
    await world.kill("worker-shell", "worker-python")
    slow = await world.ask_for(SLOW, 5, seconds=1)
    echoes = await world.ask_for(ECHO, 9)
    everything = slow + echoes
    await world.until("dead letters arrive", lambda: bool(observed.ended_by(everything, "letter")))
    await world.until("all have ended", lambda: observed.are_settled(everything))
    failed = observed.ended_by(everything, "letter")
    done = observed.in_status(everything, "completed")
    world.print_line(
        f"{len(failed)} failed by their dead letters; {len(done)} ran on worker-node, those in line included"
    )
