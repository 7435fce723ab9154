"""Wait at start for what we stand on. Nothing is in hand yet, so a signal ends the waiting at once."""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import BrokerRightsMissing, Contended, StartTimedOut, Unavailable
from dlq_handler.services.every import Backoff, pause

log = structlog.get_logger()


async def wait_for(
    attempt: Callable[[], Coroutine[None, None, None]], wait_until: float, stop: asyncio.Event
) -> None:
    """Until it succeeds, or it is time to stop. Raises `StartTimedOut`."""
    backoff = Backoff(first_seconds=0.25, most_seconds=2.0)
    while not stop.is_set():
        try:
            await _unless_stopped(attempt(), stop)
        except (Unavailable, Contended) as error:
            if monotonic_seconds() >= wait_until:
                raise StartTimedOut(str(error)) from error
            if isinstance(error, BrokerRightsMissing):
                log.warning("start.refused", error=str(error))
            else:
                log.info("start.delayed", error=str(error))
            await pause(stop, backoff.next_seconds())
        else:
            return


async def _unless_stopped(attempt: Coroutine[None, None, None], stop: asyncio.Event) -> None:
    """Nothing is in hand yet at start, so there is nothing to finish: a server that hangs must not hold up SIGTERM."""

    async def end_at_stop() -> None:
        await stop.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    limit = asyncio.timeout(None)
    try:
        async with limit:
            watching = asyncio.ensure_future(end_at_stop())
            try:
                await attempt
            finally:
                watching.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
