"""Wait for one of several events. For loops that pause until it is time, or time to stop."""

import asyncio


async def first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Return when one of them is set or the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
