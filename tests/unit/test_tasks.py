"""A failed group leaves no cancellation behind, and no requested stop is lost. Holds on every Python from 3.11 on."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from dlq_handler.broker.client.broker_errors import broker_errors
from dlq_handler.errors import Unavailable
from dlq_handler.tasks import CallCancelled, StopCheck, task_group


async def fail(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def side_by_side(*works: Coroutine[Any, Any, object]) -> None:
    async with task_group() as group:
        for work in works:
            group.create_task(work)


async def wait_and_fail_when_cancelled(started: asyncio.Event) -> None:
    started.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ValueError("on the way out") from None


def cancelling() -> int:
    task = asyncio.current_task()
    assert task
    return task.cancelling()


async def test_a_task_outlives_failed_groups_and_its_timeouts_still_work() -> None:
    for _ in range(3):
        with pytest.raises(ExceptionGroup):
            await side_by_side(asyncio.Event().wait(), fail(Unavailable("broker", "away")))
        assert cancelling() == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()


async def test_a_group_that_fails_while_its_block_waits_leaves_no_cancellation() -> None:
    async def use() -> None:
        async with task_group() as group:
            group.create_task(fail(ValueError("a bug")))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await use()
    assert cancelling() == 0


async def test_a_block_that_fails_ends_its_tasks() -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def use() -> None:
        async with task_group() as group:
            tasks.append(group.create_task(asyncio.Event().wait()))
            await fail(ValueError("a bug"))

    with pytest.raises(ExceptionGroup):
        await use()
    assert [task.cancelled() for task in tasks] == [True]
    assert cancelling() == 0


async def test_results_and_tasks_made_by_tasks_are_waited_for() -> None:
    seen: list[str] = []

    async def late() -> None:
        await asyncio.sleep(0)
        seen.append("late")

    async with task_group() as group:

        async def early() -> int:
            group.create_task(late())
            return 7

        task = group.create_task(early())
    assert (task.result(), seen) == (7, ["late"])


@pytest.mark.parametrize("fails_too", [False, True])
async def test_a_requested_stop_passes_through_a_group_that_fails_at_the_same_time(fails_too: bool) -> None:
    started, outlived = asyncio.Event(), []

    async def work() -> None:
        try:
            async with task_group() as group:
                group.create_task(wait_and_fail_when_cancelled(started))
                if fails_too:
                    await started.wait()
                    group.create_task(fail(ValueError("a bug")))
        except Exception as error:  # what a loop outlives
            outlived.append(error)
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    await asyncio.wait([task], timeout=20)
    assert task.cancelled(), outlived


async def test_a_stop_that_a_group_passed_on_does_not_disturb_the_cleanup_after_it() -> None:
    started, cleaned = asyncio.Event(), []

    async def work() -> None:
        try:
            async with task_group() as group:
                group.create_task(wait_and_fail_when_cancelled(started))
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    await asyncio.wait([task], timeout=20)
    assert (task.cancelled(), cleaned) == (True, [True])


async def test_a_call_that_a_library_cancelled_is_a_failure_of_the_group() -> None:
    with pytest.raises(ExceptionGroup) as failed:
        await side_by_side(fail(asyncio.CancelledError()))
    assert failed.group_contains(CallCancelled)


@pytest.mark.parametrize("left_behind", [0, 1])
async def test_a_cancellation_by_the_client_is_a_lost_connection_also_after_an_earlier_one(
    left_behind: int,
) -> None:
    async def use() -> None:
        if left_behind:
            await an_outlived_stop()
        with pytest.raises(Unavailable, match="the connection was lost"):
            async with broker_errors("publish"):
                raise asyncio.CancelledError

    await asyncio.create_task(use())


async def test_a_requested_stop_is_no_lost_connection() -> None:
    entered = asyncio.Event()

    async def use() -> None:
        await an_outlived_stop()
        async with broker_errors("publish"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stop_check_asks_only_about_the_time_since_it_was_made() -> None:
    async def ask() -> tuple[bool, bool]:
        before = StopCheck()
        await an_outlived_stop()
        return before.is_stop, StopCheck().is_stop

    assert await asyncio.create_task(ask()) == (True, False)


async def an_outlived_stop() -> None:
    """Leaves `cancelling() == 1` behind, as a failed TaskGroup does up to Python 3.12."""
    task = asyncio.current_task()
    assert task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
