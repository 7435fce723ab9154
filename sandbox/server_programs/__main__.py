"""Put the servers' programs into the cache where this machine has none.

Says nothing about a way that is closed: the command that needs the program names the remedy.
"""

import asyncio
import contextlib

from sandbox.server_programs.errors import SourceUnavailable
from sandbox.server_programs.fetching import print_when_found
from sandbox.server_programs.postgresql import PostgreSQLPrograms
from sandbox.server_programs.rabbitmq import RabbitMQPrograms

Programs = type[RabbitMQPrograms] | type[PostgreSQLPrograms]


async def fetch_servers() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fetch_missing("RabbitMQ", RabbitMQPrograms))
        group.create_task(fetch_missing("PostgreSQL", PostgreSQLPrograms))


async def fetch_missing(server: str, programs: Programs) -> None:
    with contextlib.suppress(SourceUnavailable):
        programs.on_this_machine()
        return
    await print_when_found(server, programs.of_packages())


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(fetch_servers())
