"""Tell whoever waits that it goes on. On stderr, and only to a terminal: a cron job's mail needs no progress.

`wait_for` is the one way in which a command asks a server, so that none can forget it; a test looks for others.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

PATIENCE_SECONDS = 2.0
AGAIN_SECONDS = 5.0

Answer = TypeVar("Answer")


def wait_for(
    doing: str, asked: Coroutine[Any, Any, Answer], *, how_far: Callable[[], str] | None = None
) -> Answer:
    """Run it to its end, all of it with `patience`: also the first connection may be what takes long."""

    async def patiently() -> Answer:
        with patience(doing, how_far=how_far, after_seconds=PATIENCE_SECONDS):
            return await asked

    return asyncio.run(patiently())


def is_watched() -> bool:
    return sys.stderr.isatty()


@contextmanager
def patience(
    doing: str, *, how_far: Callable[[], str] | None = None, after_seconds: float = PATIENCE_SECONDS
) -> Iterator[None]:
    """While the block lasts, after two seconds and then now and again: `doing`, and `how_far` it is."""
    if not is_watched():
        yield
        return
    loop = asyncio.get_running_loop()
    began, waiting = loop.time(), list[asyncio.TimerHandle]()

    def tell() -> None:
        far = f": {how_far()}" if how_far else ""
        print(f"still {doing}{far} ({loop.time() - began:.0f} s) …", file=sys.stderr, flush=True)
        waiting[:] = [loop.call_later(AGAIN_SECONDS, tell)]

    waiting.append(loop.call_later(after_seconds, tell))
    try:
        yield
    finally:
        for handle in waiting:
            handle.cancel()
