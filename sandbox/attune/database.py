"""Connections to Attune's database, with the search_path that Attune gives to each of its own.

The only importer of asyncpg here, so that its missing types stay in one place.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

import asyncpg

Row = Mapping[str, Any]

COMMAND_SECONDS = 60
CONNECT_SECONDS = 10
CLOSE_SECONDS = 5
RETRY_SECONDS = 0.2

DatabaseError: type[Exception] = asyncpg.PostgresError

DATABASE_AWAY: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # it stops, or has not finished starting
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that died in the middle of a call, given to the next one
    OSError,
    TimeoutError,
)
"""What a statement raises when the server does not answer."""

DATABASE_TROUBLE: tuple[type[Exception], ...] = (DatabaseError, *DATABASE_AWAY)


class Session(Protocol):
    """One connection inside a transaction, or a pool that takes a fresh one for each statement."""

    async def execute(self, query: str, *args: Any) -> str: ...
    async def fetch(self, query: str, *args: Any) -> list[Row]: ...
    async def fetchrow(self, query: str, *args: Any) -> Row | None: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...


class Database:
    """A pool whose connections find Attune's tables by name and speak jsonb as Python objects."""

    def __init__(self, pool: Any, *, patience_seconds: float = 0) -> None:
        self._pool = pool
        self._patience_seconds = patience_seconds

    @classmethod
    async def open(
        cls, url: str, schema: str = "attune", *, max_size: int = 4, patience_seconds: float = 0
    ) -> "Database":
        """Connects when first used. `patience_seconds`: for so long a statement waits for a server that is away, as
        Attune's pool does; one that was under way when the server died fails at once.
        """
        pool = await asyncpg.create_pool(
            plain_url(url),
            min_size=0,
            max_size=max_size,
            timeout=CONNECT_SECONDS,
            command_timeout=COMMAND_SECONDS,
            init=_speak_json,
            # A startup setting, not a SET: the pool's RESET ALL on release would undo a SET.
            server_settings={"search_path": f"{schema}, public"},
        )
        return cls(pool, patience_seconds=patience_seconds)

    async def close(self) -> None:
        """In order, and at once if the server hangs: the end of a process must not wait for it."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._pool.close()
        except DATABASE_AWAY:
            self._pool.terminate()

    @property
    def session(self) -> Session:
        return _PooledSession(self)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        async with self.connection() as connection, connection.transaction():
            yield cast("Session", connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        connection = await self._acquire()
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    async def _acquire(self) -> Any:
        end = asyncio.get_running_loop().time() + self._patience_seconds
        while True:
            try:
                return await self._pool.acquire()
            except DATABASE_AWAY:
                if asyncio.get_running_loop().time() >= end:
                    raise
            await asyncio.sleep(RETRY_SECONDS)


class _PooledSession:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def execute(self, query: str, *args: Any) -> str:
        async with self._database.connection() as connection:
            return cast("str", await connection.execute(query, *args))

    async def fetch(self, query: str, *args: Any) -> list[Row]:
        async with self._database.connection() as connection:
            return cast("list[Row]", await connection.fetch(query, *args))

    async def fetchrow(self, query: str, *args: Any) -> Row | None:
        async with self._database.connection() as connection:
            return cast("Row | None", await connection.fetchrow(query, *args))

    async def fetchval(self, query: str, *args: Any) -> Any:
        async with self._database.connection() as connection:
            return await connection.fetchval(query, *args)


@asynccontextmanager
async def bare_connection(url: str) -> AsyncIterator[Session]:
    """One connection with the server's own search_path, as any stranger would get it."""
    connection = await asyncpg.connect(
        plain_url(url), timeout=CONNECT_SECONDS, command_timeout=COMMAND_SECONDS
    )
    try:
        await _speak_json(connection)
        yield cast("Session", connection)
    finally:
        await connection.close()


def plain_url(url: str) -> str:
    """asyncpg takes no SQLAlchemy driver name in the scheme."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


async def _speak_json(connection: Any) -> None:
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
