"""What every reference service has: its own connections to both servers.

Inside a test it is begun by start() and ended by close(); one that fails to start leaves nothing open. As a process it
has run(): there a server that is away at the start is waited for, and so is the database at any time. A broker that is
lost later is lost for good (NO_RECONNECT): the process goes on without it.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import ClassVar, Self, TypedDict

from aio_pika.abc import AbstractChannel, AbstractConnection

from sandbox.attune.amqp import (
    BROKER_AWAY,
    Publisher,
    PublishFailed,
    loss_as_error,
    open_connection,
)
from sandbox.attune.database import DATABASE_TROUBLE, Database
from sandbox.attune.defects import NONE_CURED, Cured, Defect
from sandbox.attune.first_event import first_of
from sandbox.attune.log_line import PrintLine, silent
from sandbox.attune.messages import StockMessage

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0


class Wiring(TypedDict, total=False):
    """What every service may be given beside its servers."""

    schema: str
    pool: Database | None
    """Connections shared with others, who close them; fifty services of their own are too many."""
    cured: Cured
    print_line: PrintLine
    connection_name: str | None
    """How the broker's own tools show it."""
    amqp_heartbeat_seconds: int | None


class AttuneService:
    role: ClassVar[str] = "service"
    """What its lines call it."""

    def __init__(
        self,
        amqp_url: str,
        database_url: str,
        *,
        schema: str = "attune",
        pool: Database | None = None,
        cured: Cured = NONE_CURED,
        print_line: PrintLine = silent,
        connection_name: str | None = None,
        amqp_heartbeat_seconds: int | None = None,
    ) -> None:
        self._amqp_url = amqp_url
        self._database_url = database_url
        self._schema = schema
        self._pool = pool
        self.cured = cured
        self._print_line = print_line
        self._connection_name = connection_name
        self._amqp_heartbeat_seconds = amqp_heartbeat_seconds
        self._database: Database | None = None
        self._connection: AbstractConnection | None = None
        self._publisher: Publisher | None = None
        self._lost = asyncio.Event()

    async def start(self) -> None:
        await self._open_database()
        try:
            await self._connect()
        except BaseException:
            await self._disconnect()
            raise

    async def close(self) -> None:
        await self._disconnect()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`. The database is asked anew by each statement."""
        await self._open_database()
        pause = FIRST_PAUSE_SECONDS
        try:
            while not stop.is_set():
                try:
                    with loss_as_error():
                        await self._connect()
                except (*BROKER_AWAY, *DATABASE_TROUBLE) as error:
                    await self._hang_up()
                    if pause == FIRST_PAUSE_SECONDS:
                        self._print_line(f"{self.role}: cannot begin yet: {type(error).__name__}: {error}")
                    await first_of(stop, seconds=pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                    continue
                self._print_line(f"{self.role}: connected")
                pause = FIRST_PAUSE_SECONDS
                await first_of(stop, self._lost)
                if stop.is_set():
                    break
                if Defect.NO_RECONNECT not in self.cured:
                    self._print_line(
                        f"{self.role}: the connection to the broker is lost; runs on without it until it is restarted"
                    )
                    await stop.wait()
                    break
                self._print_line(f"{self.role}: the connection to the broker is lost; reconnects")
                await self._hang_up()
            await self._finish()
        finally:
            await self._disconnect()

    async def _begin(self, channel: AbstractChannel) -> None:
        """Declare, and start consuming on `channel`. With NO_RECONNECT cured it is called again after a loss."""

    async def _finish(self) -> None:
        """What a process does between being asked to stop and letting go of both servers."""

    @property
    def _kept(self) -> tuple[type[Exception], ...]:
        """Errors after which a message is not dropped: for a `QueueConsumer`."""
        return DATABASE_TROUBLE if Defect.D5 in self.cured else ()

    @property
    def is_connected(self) -> bool:
        return self._publisher is not None and not self._lost.is_set()

    async def publish(self, message: StockMessage) -> None:
        """As a process: PublishFailed also while there is no connection at all."""
        if not self.is_connected:
            raise PublishFailed(f"{message.routing_key}: there is no connection to the broker")
        await self.publisher.publish(message)

    async def _open_database(self) -> None:
        self._database = self._pool or await Database.open(self._database_url, self._schema)

    async def _connect(self) -> None:
        self._lost = lost = asyncio.Event()
        self._connection = await open_connection(
            self._amqp_url, name=self._connection_name, heartbeat_seconds=self._amqp_heartbeat_seconds
        )
        channel = await self._connection.channel()
        # The channel's end, which is the connection's end too: closed alone it takes its consumers along just the same.
        channel.close_callbacks.add(lambda *_: lost.set())
        self._publisher = Publisher(self._connection)
        await self._begin(channel)

    async def _hang_up(self) -> None:
        connection, self._connection, self._publisher = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(*BROKER_AWAY):
                await connection.close()

    async def _disconnect(self) -> None:
        await self._hang_up()
        database, self._database = self._database, None
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
