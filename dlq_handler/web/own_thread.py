"""Two event loops in one process: run a service on a loop of its own, and call from there into the first one."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from dlq_handler.errors import Unavailable

Answer = TypeVar("Answer")
Serve = Callable[[asyncio.Event], Awaitable[None]]

# Longer than a listener takes to end by itself. What hangs even then ends with the process.
ENDING_SECONDS = 5.0

log = structlog.get_logger()


class EndedEarly(Exception):
    """A thread ended although nothing had stopped it."""


async def run_in_own_thread(serve: Serve, stop: asyncio.Event, *, name: str) -> None:
    """Run `serve` on a loop of its own until `stop` is set here; its stop event is set there. Its error is raised."""
    stops: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def begin() -> None:
        own_stop = asyncio.Event()
        stops.set_result((asyncio.get_running_loop(), own_stop))
        await serve(own_stop)

    def run() -> None:
        try:
            asyncio.run(begin())
        except BaseException as error:
            # Raised again where the thread is awaited. `stops` is not done if the loop could not be created.
            if not stops.done():
                stops.set_exception(error)
            ended.set_exception(error)
        else:
            ended.set_result(None)

    # With the context of this thread: log records carry the name of the replica from there.
    threading.Thread(target=contextvars.copy_context().run, args=(run,), name=name, daemon=True).start()
    loop, own_stop = await asyncio.wrap_future(stops)
    ending = asyncio.wrap_future(ended)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((ending, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            ending.result()
            raise EndedEarly(f"the thread {name} ended before it was stopped")
    finally:
        stopping.cancel()
        # RuntimeError: that loop is closed already.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(own_stop.set)
    # Not `wait_for`: it would cancel a future that the thread still has to fill.
    await asyncio.wait((ending,), timeout=ENDING_SECONDS)
    if ending.done():
        ending.result()
    else:
        log.warning("thread.abandoned", thread=name, seconds=ENDING_SECONDS)


class OtherLoop:
    """Calls from one loop into another, few at a time and each with a deadline. Used by the calling loop only."""

    def __init__(self, *, most_at_once: int = 2) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(most_at_once)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call this before the first call: the loop does not run yet when this is constructed."""
        self._loop = loop

    async def call(self, work: Callable[[], Coroutine[Any, Any, Answer]], *, within_seconds: float) -> Answer:
        """`work()` is awaited over there, and cancelled there when time is up. Raises `Unavailable` then."""
        assert self._loop is not None  # noqa: S101  the web server binds it before it serves
        deadline = asyncio.timeout(within_seconds)
        try:
            async with deadline, self._places:
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise Unavailable("dlq-handler", f"no answer within {within_seconds:g} s") from error
