"""What all reference processes have in common: they serve until SIGTERM or SIGINT, then end in order and in time."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

Serve = Callable[[asyncio.Event], Awaitable[None]]


async def until_signalled(serve: Serve, *, grace_seconds: float) -> None:
    """`serve(stop)` returns soon after `stop` is set; what has not after `grace_seconds` is given up."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with asyncio.timeout(None) as deadline, asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(_serve(serve, stop), name="serve")
            await stop.wait()
            if not serving.done():
                deadline.reschedule(loop.time() + grace_seconds)
    except TimeoutError:
        pass  # a server that hangs must not keep us


async def _serve(serve: Serve, stop: asyncio.Event) -> None:
    try:
        await serve(stop)
    finally:
        stop.set()
