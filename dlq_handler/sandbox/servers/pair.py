"""Both servers at once, started side by side: RabbitMQ takes ten seconds, PostgreSQL one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dlq_handler.sandbox.servers.find import find_postgresql, find_rabbitmq
from dlq_handler.sandbox.servers.postgresql import PostgreSQL
from dlq_handler.sandbox.servers.private_postgresql import PrivatePostgreSQL
from dlq_handler.sandbox.servers.private_rabbitmq import PrivateRabbitMQ
from dlq_handler.sandbox.servers.rabbitmq import RabbitMQ
from dlq_handler.sandbox.servers.ways import Say, say_on_stderr


class Closeable(Protocol):
    async def close(self) -> None: ...


Server = TypeVar("Server", bound=Closeable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Found by the order of `find`: named ones, containers, or private ones."""

    rabbitmq: RabbitMQ
    postgresql: PostgreSQL

    @classmethod
    @asynccontextmanager
    async def find(cls, *, durable: bool = True, say: Say = say_on_stderr) -> AsyncIterator["Servers"]:
        async with AsyncExitStack() as closing:
            async with asyncio.TaskGroup() as group:
                rabbitmq = group.create_task(kept(find_rabbitmq(say=say), closing))
                postgresql = group.create_task(kept(find_postgresql(durable=durable, say=say), closing))
            yield cls(rabbitmq=rabbitmq.result(), postgresql=postgresql.result())


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateServers:
    """Our own: they may be stopped, killed and started again."""

    rabbitmq: PrivateRabbitMQ
    postgresql: PrivatePostgreSQL

    @classmethod
    @asynccontextmanager
    async def launch(cls, *, durable: bool = True) -> AsyncIterator["PrivateServers"]:
        async with AsyncExitStack() as closing:
            async with asyncio.TaskGroup() as group:
                rabbitmq = group.create_task(kept(PrivateRabbitMQ.launch(), closing))
                postgresql = group.create_task(kept(PrivatePostgreSQL.launch(durable=durable), closing))
            yield cls(rabbitmq=rabbitmq.result(), postgresql=postgresql.result())


async def kept(launching: Awaitable[Server], closing: AsyncExitStack) -> Server:
    """Registered for closing as soon as it is there, so that a failure of the other one does not leave it
    behind.
    """
    server = await launching
    closing.push_async_callback(server.close)
    return server
