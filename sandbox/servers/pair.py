"""Both servers at once, started side by side: RabbitMQ takes ten seconds, PostgreSQL one."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sandbox.servers.errors import NoServer
from sandbox.servers.find import find_postgresql, find_rabbitmq
from sandbox.servers.postgresql import PostgreSQL
from sandbox.servers.private_postgresql import PrivatePostgreSQL
from sandbox.servers.private_rabbitmq import PrivateRabbitMQ
from sandbox.servers.rabbitmq import RabbitMQ
from sandbox.servers.sources import PrintLine, print_on_stderr


class Closeable(Protocol):
    async def close(self) -> None: ...


Server = TypeVar("Server", bound=Closeable)
Broker = TypeVar("Broker", bound=Closeable)
Database = TypeVar("Database", bound=Closeable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Found by the order of `find`: named ones, containers, or private ones. NoServer says what is missing."""

    rabbitmq: RabbitMQ
    postgresql: PostgreSQL

    @classmethod
    @asynccontextmanager
    async def find(
        cls, *, durable: bool = True, print_line: PrintLine = print_on_stderr
    ) -> AsyncIterator["Servers"]:
        async with both(
            find_rabbitmq(print_line=print_line), find_postgresql(durable=durable, print_line=print_line)
        ) as found:
            yield cls(rabbitmq=found[0], postgresql=found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateServers:
    """Our own: they may be stopped, killed and started again."""

    rabbitmq: PrivateRabbitMQ
    postgresql: PrivatePostgreSQL

    @classmethod
    @asynccontextmanager
    async def launch(cls, *, durable: bool = True) -> AsyncIterator["PrivateServers"]:
        async with both(PrivateRabbitMQ.launch(), PrivatePostgreSQL.launch(durable=durable)) as launched:
            yield cls(rabbitmq=launched[0], postgresql=launched[1])


@asynccontextmanager
async def both(
    broker: Coroutine[Any, Any, Broker], database: Coroutine[Any, Any, Database]
) -> AsyncIterator[tuple[Broker, Database]]:
    async with AsyncExitStack() as closing:
        try:
            async with asyncio.TaskGroup() as group:
                rabbitmq = group.create_task(kept(broker, closing))
                postgresql = group.create_task(kept(database, closing))
        except ExceptionGroup as failed:
            missing, others = failed.split(NoServer)
            if missing is None or others is not None:
                raise
            # One readable error instead of a tree of traces.
            raise NoServer("\n".join(str(error) for error in missing.exceptions)) from failed
        yield rabbitmq.result(), postgresql.result()


async def kept(launching: Coroutine[Any, Any, Server], closing: AsyncExitStack) -> Server:
    """Closed at the end from the moment it is there: a failure of the other one does not leave it behind."""
    server = await launching
    closing.push_async_callback(server.close)
    return server
