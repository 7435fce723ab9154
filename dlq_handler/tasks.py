"""Distinguish a requested stop from a cancellation that a library raises, and run tasks side by side.

Two traps of asyncio are handled here, once. A client library may raise `CancelledError` by itself when its connection
is lost. And up to Python 3.12 a failed `asyncio.TaskGroup` may leave `cancelling() == 1` behind in the task that used
it; on 3.11.2 every later `asyncio.timeout` of that task then raises `CancelledError` instead of `TimeoutError`.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")


class StopCheck:
    """Made on entry of a block, asked when `CancelledError` leaves it."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0

    @property
    def is_stop(self) -> bool:
        """True: the task was asked to stop since entry. False: the cancellation came out of a library call."""
        return self._task is None or self._task.cancelling() > self._before


class CallCancelled(Exception):
    """A library cancelled a call, although the task that waited for it was not asked to stop."""


class StoppableTaskGroup:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[Any]] = set()

    def create_task(
        self, work: Coroutine[Any, Any, Result], *, name: str | None = None
    ) -> asyncio.Task[Result]:
        task = self._group.create_task(_with_cancelled_call_as_error(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)


async def _with_cancelled_call_as_error(work: Coroutine[Any, Any, Result]) -> Result:
    """A `TaskGroup` drops a task that ends in `CancelledError` without a word, also one that a library raised."""
    stop = StopCheck()
    try:
        return await work
    except asyncio.CancelledError as error:
        if stop.is_stop:
            raise
        raise CallCancelled("a library cancelled the call") from error


@asynccontextmanager
async def task_group() -> AsyncIterator[StoppableTaskGroup]:
    """An `asyncio.TaskGroup` whose failure the task can outlive: it takes back exactly the cancellation it added.

    The group waits inside its block, because Python 3.11 and 3.12 take back their own cancellation only there.
    A stop that was requested meanwhile goes first: `CancelledError`, with the failures as its cause.
    """
    stop = StopCheck()
    try:
        async with asyncio.TaskGroup() as tasks:
            group = StoppableTaskGroup(tasks)
            yield group
            await group.wait()
    except BaseExceptionGroup as failed:
        if not stop.is_stop:
            raise
        # Python 3.13 delivers the stop again at the next wait: here, not in the caller's cleanup.
        await asyncio.sleep(0)
        raise asyncio.CancelledError from failed
