"""Report that a command is still waiting. On stderr, and only to a terminal: a cron job's mail needs no progress.

Every command that asks a server runs in `wait_for`, and a test checks that. Only a command that shows its own progress
runs in `run_until_interrupted`. Both end with `KeyboardInterrupt` at Ctrl-C.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import read_server
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database

PATIENCE_SECONDS = 2.0
AGAIN_SECONDS = 5.0

Answer = TypeVar("Answer")


def wait_for(
    doing: str, asked: Coroutine[Any, Any, Answer], *, how_far: Callable[[], str] | None = None
) -> Answer:
    """Run it to its end within `patience`, including the first connection, which can take long."""

    async def patiently() -> Answer:
        with patience(doing, how_far=how_far, after_seconds=PATIENCE_SECONDS):
            return await asked

    return _run(patiently())


def ask_database(
    doing: str, settings: Settings, ask: Callable[[Database], Awaitable[Answer]]
) -> tuple[Answer, datetime]:
    """The answer and the database's time. The connection is closed with the answer."""

    async def asked() -> tuple[Answer, datetime]:
        async with open_database(settings) as database:
            return await ask(database), (await read_server(database)).now

    return wait_for(doing, asked())


def run_until_interrupted(watching: Coroutine[Any, Any, None]) -> None:
    """Run it until Ctrl-C, which is its normal end."""
    with suppress(KeyboardInterrupt):
        _run(watching)


def _run(work: Coroutine[Any, Any, Answer]) -> Answer:
    """`asyncio.run`, except that Ctrl-C cancels between two steps of the work, never in the middle of one.

    The handler of `asyncio.run` cancels a task that is running. A block that the task enters in the same step takes
    that cancellation for one of its library (`StopCheck`), and the command reports a lost connection.
    """
    interrupted = False

    async def interruptible() -> Answer:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def interrupt() -> None:
            nonlocal interrupted
            interrupted = True
            # A second Ctrl-C ends a clean-up that does not end by itself.
            loop.remove_signal_handler(signal.SIGINT)
            if task is not None:
                task.cancel()

        # Python delivers signals to the main thread only; in another one there is no Ctrl-C to handle.
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGINT, interrupt)
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise


def is_watched() -> bool:
    return sys.stderr.isatty()


@contextmanager
def patience(
    doing: str, *, how_far: Callable[[], str] | None = None, after_seconds: float = PATIENCE_SECONDS
) -> Iterator[None]:
    """Print `doing` and `how_far` while the block runs, first after `after_seconds`, then repeatedly."""
    if not is_watched():
        yield
        return
    loop = asyncio.get_running_loop()
    began, waiting = loop.time(), list[asyncio.TimerHandle]()

    def report() -> None:
        far = f": {how_far()}" if how_far else ""
        print(f"still {doing}{far} ({loop.time() - began:.0f} s) …", file=sys.stderr, flush=True)
        waiting[:] = [loop.call_later(AGAIN_SECONDS, report)]

    waiting.append(loop.call_later(after_seconds, report))
    try:
        yield
    finally:
        for handle in waiting:
            handle.cancel()
