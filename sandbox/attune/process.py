"""What all reference processes have in common: they serve until SIGTERM or SIGINT, then end in order and in time.

Attune's executor and api handle SIGINT only: SIGTERM ends them at once (SIGTERM_AT_ONCE).
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

Serve = Callable[[asyncio.Event], Awaitable[None]]


async def until_signalled(serve: Serve, *, grace_seconds: float, ends_at_once: bool = False) -> None:
    """`serve(stop)` returns soon after `stop` is set; what has not after `grace_seconds` is given up.

    `ends_at_once`: on SIGTERM. Not left to the kernel, which keeps SIGTERM from the first process of a container.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if ends_at_once:
        loop.add_signal_handler(signal.SIGTERM, os._exit, 128 + signal.SIGTERM)
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
