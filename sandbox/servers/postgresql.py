"""A PostgreSQL that tests and the demo may use, wherever it came from. A database each keeps its users apart.

Bound to no event loop and holds no connection: one object serves every test of a session.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from sandbox.servers.errors import NoServer, NotPrivate

REQUEST_SECONDS = 30
STARTING_OR_AWAY = (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError)


class PostgreSQL:
    def __init__(self, *, url: str, origin: str) -> None:
        parts = urlsplit(url)
        self.url = url
        self.origin = origin
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or 5432

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def url_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    async def await_ready(self, timeout: float = 60) -> None:
        """Until it answers a query. NoServer when it does not in time."""
        complaint: Exception | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        await self.execute("SELECT 1")
                    except STARTING_OR_AWAY as refused:
                        complaint = refused
                        await asyncio.sleep(0.05)
                    else:
                        return
        except TimeoutError:
            raise NoServer(
                f"PostgreSQL at {self.host}:{self.port} is not ready: {complaint!r}"
            ) from complaint

    async def create_database(self, name: str, template: str | None = None) -> str:
        """Its URL. A template must have no sessions while it is copied."""
        copied = f" TEMPLATE {quoted(template)}" if template else ""
        await self.execute(f"CREATE DATABASE {quoted(name)}{copied}")
        return self.url_of(name)

    async def drop_database(self, name: str) -> None:
        """Also with open connections to it, and when it does not exist."""
        await self.execute(f"DROP DATABASE IF EXISTS {quoted(name)} WITH (FORCE)")

    async def execute(self, statement: str) -> None:
        async with self.session() as session:
            await session.execute(statement)

    @asynccontextmanager
    async def session(
        self, database: str | None = None
    ) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        url = self.url_of(database) if database else self.url
        connection = await asyncpg.connect(url, timeout=REQUEST_SECONDS, command_timeout=REQUEST_SECONDS)
        try:
            yield connection
        finally:
            await connection.close(timeout=REQUEST_SECONDS)

    async def start(self) -> None:
        """Again, on the same port and data."""
        raise NotPrivate("PostgreSQL", self.origin)

    async def stop(self) -> None:
        raise NotPrivate("PostgreSQL", self.origin)

    async def kill(self) -> None:
        """As by kill -9 of every one of its processes: recovery at the next start."""
        raise NotPrivate("PostgreSQL", self.origin)

    async def close(self) -> None:
        """Give it back: what was started for us ends, what was there stays."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
