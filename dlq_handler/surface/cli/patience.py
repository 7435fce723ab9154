"""Tell whoever waits that it goes on. On stderr, and only to a terminal: a cron job's mail needs no progress."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_SECONDS = 2.0
AGAIN_SECONDS = 5.0


@contextmanager
def patience(
    doing: str, *, how_far: Callable[[], str] | None = None, after_seconds: float = PATIENCE_SECONDS
) -> Iterator[None]:
    """While the block lasts, after two seconds and then now and again: `doing`, and `how_far` it is."""
    if not sys.stderr.isatty():
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
