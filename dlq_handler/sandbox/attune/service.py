"""What every reference service has: its own connections to both servers, start() and close().

A service that fails to start leaves nothing open.
"""

from types import TracebackType
from typing import Self

from aio_pika.abc import AbstractChannel, AbstractConnection

from dlq_handler.sandbox.attune.amqp import Publisher, open_connection
from dlq_handler.sandbox.attune.database import Database


class AttuneService:
    def __init__(
        self, amqp_url: str, database_url: str, *, schema: str = "attune", pool: Database | None = None
    ) -> None:
        """`pool`: connections shared with others, who close them; fifty services of their own are too many."""
        self._amqp_url = amqp_url
        self._database_url = database_url
        self._schema = schema
        self._pool = pool
        self._database: Database | None = None
        self._connection: AbstractConnection | None = None
        self._publisher: Publisher | None = None

    async def start(self) -> None:
        self._database = self._pool or await Database.open(self._database_url, self._schema)
        try:
            self._connection = await open_connection(self._amqp_url)
            self._publisher = Publisher(self._connection)
            await self._begin(await self._connection.channel())
        except BaseException:
            await self._disconnect()
            raise

    async def close(self) -> None:
        await self._disconnect()

    async def _begin(self, channel: AbstractChannel) -> None:
        """Declare, and start consuming on `channel`."""

    async def _disconnect(self) -> None:
        connection, self._connection, self._publisher = self._connection, None, None
        database, self._database = self._database, None
        if connection is not None:
            await connection.close()
        if database is not None and database is not self._pool:
            await database.close()

    @property
    def database(self) -> Database:
        if self._database is None:
            raise RuntimeError(f"{type(self).__name__} is not running; call start() first")
        return self._database

    @property
    def publisher(self) -> Publisher:
        if self._publisher is None:
            raise RuntimeError(f"{type(self).__name__} is not running; call start() first")
        return self._publisher

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
