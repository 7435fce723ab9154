"""Wait for one of two events. For loops that sleep until there is work, or it is time to stop."""

import asyncio

from dlq_handler.heartbeat import beating


async def first_of(one: asyncio.Event, other: asyncio.Event, seconds: float | None = None) -> None:
    """Return when either is set, or the time is over; which it was, the events tell. A loop that waits here turns."""
    waits = [asyncio.ensure_future(one.wait()), asyncio.ensure_future(other.wait())]
    try:
        with beating():
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
