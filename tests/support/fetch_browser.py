"""Put Chromium, and the library that its driver needs, into the cache where this machine has none."""

import asyncio
import contextlib

from sandbox.server_programs.fetching import print_when_found
from tests.support.chromium_program import ChromiumProgram
from tests.support.playwright_driver import find_driver_variables


async def fetch_browser() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(print_when_found("Chromium", ChromiumProgram.find()))
        group.create_task(print_when_found("Playwright's library", find_driver_variables()))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(fetch_browser())
