"""Have the servers' programs in the cache, where this machine has none; with `--browser` Chromium too, which only
the tests need. Quiet about a way that is closed: whoever needs the program then says what to do.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable

from dlq_handler.sandbox.server_programs.chromium import ChromiumProgram
from dlq_handler.sandbox.server_programs.errors import WayClosed
from dlq_handler.sandbox.server_programs.postgresql import PostgreSQLPrograms
from dlq_handler.sandbox.server_programs.rabbitmq import RabbitMQPrograms

Programs = type[RabbitMQPrograms] | type[PostgreSQLPrograms]


async def fetch(*, browser: bool) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fetched("RabbitMQ", RabbitMQPrograms))
        group.create_task(fetched("PostgreSQL", PostgreSQLPrograms))
        if browser:
            group.create_task(at_hand("Chromium", ChromiumProgram.find()))


async def fetched(server: str, programs: Programs) -> None:
    with contextlib.suppress(WayClosed):
        programs.on_this_machine()
        return
    await at_hand(server, programs.of_packages())


async def at_hand(what: str, fetching: Awaitable[object]) -> None:
    began = time.monotonic()
    with contextlib.suppress(WayClosed):
        await fetching
        print(f"./run: {what} is at hand after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(fetch(browser="--browser" in sys.argv[1:]))
