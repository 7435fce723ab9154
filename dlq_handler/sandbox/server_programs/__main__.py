"""Have the servers' programs in the cache, where this machine has none. Quiet about a way that is closed: whoever
needs the server then says what to do.
"""

import asyncio
import contextlib
import time

from dlq_handler.sandbox.server_programs.errors import WayClosed
from dlq_handler.sandbox.server_programs.postgresql import PostgreSQLPrograms
from dlq_handler.sandbox.server_programs.rabbitmq import RabbitMQPrograms

Programs = type[RabbitMQPrograms] | type[PostgreSQLPrograms]


async def fetch() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fetched("RabbitMQ", RabbitMQPrograms))
        group.create_task(fetched("PostgreSQL", PostgreSQLPrograms))


async def fetched(server: str, programs: Programs) -> None:
    with contextlib.suppress(WayClosed):
        programs.on_this_machine()
        return
    began = time.monotonic()
    with contextlib.suppress(WayClosed):
        await programs.of_packages()
        print(f"./run: {server} is at hand after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(fetch())
