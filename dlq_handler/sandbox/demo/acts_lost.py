"""Acts 1 to 3: work is lost, found by the monitor, and the next time told of by its letters."""

from dlq_handler.sandbox.demo.sight import numbers
from dlq_handler.sandbox.demo.world import World

ECHO, SLOW = "core.echo", "core.slow"


async def without_us(world: World) -> list[int]:
    """The executions that hang in the end, in the order of their ids."""
    world.act(
        1,
        "Stock Attune, without us",
        "Look at: letters arrive nowhere, scheduled stays, the line stands still.",
    )
    sight = world.sight
    world.say("Attune's own timeout monitor is off here: it ends work that may still run (defect D12)")
    await world.start("api", "executor", "worker-shell", "worker-python")
    warm = await world.ask_for(ECHO, 3)
    await world.until("work flows while workers live", lambda: sight.are_settled(warm), part="worker-shell")

    await world.kill("worker-shell", "worker-python")
    # At once: for a while their last heartbeats still look fresh, and the scheduler believes them.
    slow = await world.ask_for(SLOW, 4, seconds=1)
    echoes = await world.ask_for(ECHO, 6)
    everything = slow + echoes

    def waiting() -> int:
        return sum(ready for queue, ready in sight.queues.items() if queue.startswith("worker."))

    def dispatched() -> list[int]:
        return sight.in_status(everything, "scheduled")

    # All but those that stand in the line behind the two slots.
    await world.until(
        "all are dispatched to the dead workers",
        lambda: len(dispatched()) == len(everything) - 2 == waiting(),
        part="executor",
    )
    hanging = dispatched()
    world.say(
        f"{waiting()} messages wait in the queues of workers that are gone; they expire after their TTL"
    )
    await world.until("they expire", lambda: waiting() == 0, part="broker")
    world.say(f"all {len(hanging)} expired. Letters in attune.dlx.queue: {sight.queues['attune.dlx.queue']}")

    await world.start("worker-node")
    fresh = await world.ask_for(ECHO, 1)
    await world.until("a new worker works", lambda: sight.are_settled(fresh), part="worker-node")
    in_line = [number for number, status in sight.line if status == "queued"]
    world.say(
        f"even with a living worker {numbers(hanging)} stay scheduled for ever, "
        f"and {numbers(in_line)} wait for their slots"
    )
    return hanging


async def monitor_rescues(world: World, hanging: list[int]) -> None:
    world.act(
        2, "The sidecar starts", "Look at: scheduled goes to 0, slots become free, the line moves again."
    )
    sight = world.sight
    in_line = [number for number, _ in sight.line]
    await world.start("sidecar")
    world.say(
        "dlq-handler is ready. It changed nothing of Attune: a queue of its own, bound to each worker's key"
    )
    world.say(f"its dashboard, for as long as the story lasts: {world.stage.ui_url}")
    world.say(
        "their letters are gone for good, so its monitor ends them: past their horizon, workers unavailable"
    )
    await world.until("the monitor ends what hung", lambda: len(sight.over(hanging)) == len(hanging))
    await world.until("each end is announced", lambda: sight.are_settled(hanging))
    await world.until("the line of core.slow has moved", lambda: sight.are_settled(in_line))
    world.say(
        f"all {len(hanging)} are failed and announced; whoever waited in the line has run on worker-node"
    )


async def letters_arrive(world: World) -> None:
    world.act(
        3,
        "The workers are killed again",
        "Look at: now letters come; each is judged and announced within a second.",
    )
    sight = world.sight
    await world.start("worker-shell", "worker-python")
    await world.kill("worker-shell", "worker-python")
    slow = await world.ask_for(SLOW, 5, seconds=1)
    echoes = await world.ask_for(ECHO, 9)
    everything = slow + echoes
    await world.until("the letters come", lambda: bool(sight.ended_by(everything, "letter")))
    await world.until("all have come to an end", lambda: sight.are_settled(everything))
    failed = sight.ended_by(everything, "letter")
    done = sight.in_status(everything, "completed")
    world.say(f"{len(failed)} failed by their letters; {len(done)} ran on worker-node, the line's included")
