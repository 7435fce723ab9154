"""Promise 4: killing the process anywhere loses nothing and repeats harmlessly. Promise 3: each
completion event is published once, or again with the same id if the process died between confirm and mark.
"""

import signal

import pytest

from sandbox.attune.executor import Dispatch
from tests.crash.world import SABOTAGE, CrashWorld

LETTERS = 60


async def die_at(world: CrashWorld, point: str, nth: int) -> list[Dispatch]:
    dispatches = await world.dead_lettered(LETTERS)
    async with world.sidecar("killed", start=False, batch__size="20") as victim:
        await victim.start(program=(SABOTAGE, point, str(nth)), ready=False)
        assert await victim.wait() == -signal.SIGKILL, victim.log_text()
    return dispatches


async def test_killed_in_the_middle_of_a_load_before_the_commit_the_letters_come_again(
    world: CrashWorld,
) -> None:
    dispatches = await die_at(world, "before_commit", 3)
    assert await world.failed() == 40
    async with world.sidecar("successor"):
        await world.settled_once(dispatches)


async def test_killed_after_the_commit_and_before_the_ack_nothing_is_done_twice(world: CrashWorld) -> None:
    dispatches = await die_at(world, "after_commit", 2)
    assert await world.failed() == 40
    async with world.sidecar("successor") as successor:
        await world.settled_once(dispatches)
        assert successor.events("outbox_entry.reclaimed")
    repeats = await world.sql("SELECT sum(repeats) FROM dlq_handler.letter")
    assert repeats[0][0] >= 20, "the batch that was committed and not acknowledged comes again"


async def test_killed_between_ack_and_publish_the_completion_events_are_reclaimed(world: CrashWorld) -> None:
    dispatches = await die_at(world, "after_ack", 3)
    assert await world.failed() == LETTERS
    assert await world.auditor.completions() == []
    async with world.sidecar("successor") as successor:
        await world.settled_once(dispatches)
        assert successor.events("outbox_entry.reclaimed")


@pytest.mark.parametrize("point", ["after_confirm", "half_published"])
async def test_killed_between_confirm_and_mark_only_published_events_repeat_with_the_same_id(
    world: CrashWorld, point: str
) -> None:
    dispatches = await die_at(world, point, 1)
    before = await world.auditor.completions()
    assert before
    async with world.sidecar("successor"):
        await world.settled_once(dispatches, may_repeat_completions=True)
    assert len(await world.auditor.completions()) == LETTERS + len(before)


async def test_a_bug_while_deciding_gives_the_letters_back_and_does_not_end_the_sidecar(
    world: CrashWorld,
) -> None:
    dispatches = await world.dead_lettered(LETTERS)
    async with world.sidecar(start=False, batch__size="20") as sidecar:
        await sidecar.start(program=(SABOTAGE, "a_bug", "2"))
        await world.settled_once(dispatches)
        assert len(sidecar.events("loop.crashed")) == 1
        assert len(sidecar.events("intake.opened")) == 2
        assert await sidecar.terminate() == 0
