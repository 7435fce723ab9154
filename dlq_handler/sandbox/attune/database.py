"""Connections to Attune's database, with the search_path that Attune gives to each of its own.

The only importer of asyncpg here, so that its missing types stay in one place.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

import asyncpg

Row = Mapping[str, Any]

COMMAND_SECONDS = 60
CONNECT_SECONDS = 10

DatabaseError: type[Exception] = asyncpg.PostgresError


class Session(Protocol):
    """One connection inside a transaction, or a pool that takes a fresh one for each statement."""

    async def execute(self, query: str, *args: Any) -> str: ...
    async def fetch(self, query: str, *args: Any) -> list[Row]: ...
    async def fetchrow(self, query: str, *args: Any) -> Row | None: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...


class Database:
    """A pool whose connections find Attune's tables by name and speak jsonb as Python objects."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str, schema: str = "attune", *, max_size: int = 4) -> "Database":
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
        return cls(pool)

    async def close(self) -> None:
        await self._pool.close()

    @property
    def session(self) -> Session:
        return cast("Session", self._pool)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        async with self._pool.acquire() as connection, connection.transaction():
            yield cast("Session", connection)


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
