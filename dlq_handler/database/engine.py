"""The database as the sidecar uses it: short transactions, each with its own settings, each bounded in time.

Promises: nothing here waits for ever, not even on a half-open connection; a connection whose call was cut
short is closed, never used again; whatever the driver raises comes out as one of errors.py; works through a
transaction pooler, because nothing outlives its transaction: no named prepared statement, no session setting,
no startup parameter.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import asyncpg
from sqlalchemy import event, text
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.driver import (
    DRIVER_ERRORS,
    DriverConnection,
    Fault,
    commit_fault_of,
    fault_of,
    keep_alive,
)
from dlq_handler.database.link import SILENCE_SECONDS, Link, Outage
from dlq_handler.database.postgres_values import quoted, use_total_codec
from dlq_handler.database.transaction import Transaction, in_own_schema
from dlq_handler.database.url import read_database_url
from dlq_handler.errors import TooSlow, Unavailable, Unreachable
from dlq_handler.health import bounded

# Maximum time from the end of a statement on the server until its answer arrives here.
MARGIN_SECONDS = 2.0
PING_SECONDS = 3.0

# Local to the transaction: a pooler would pass a session's settings on to other clients. The idle limit releases the
# row locks when this process is frozen or the network is down: to the server both are an idle transaction.
_SETTINGS = text(
    "SELECT set_config('search_path', :search_path, true), set_config('lock_timeout', :lock_timeout, true),"
    " set_config('statement_timeout', :statement_timeout, true),"
    " set_config('idle_in_transaction_session_timeout', :idle_timeout, true)"
)


class Database:
    def __init__(
        self,
        url: str,
        *,
        host_schema: str = "attune",
        own_schema: str = "dlq_handler",
        pool_size: int = 5,
        connect_timeout_seconds: float = 5.0,
        statement_timeout_ms: int = 10_000,
        lock_timeout_ms: int = 2_000,
        application_name: str = "dlq-handler",
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        """Connects to nothing yet. Raises ValueError, in words, for a URL that cannot be obeyed."""
        self.host_schema = host_schema
        self.own_schema = own_schema
        self._url = read_database_url(url, application_name=application_name)
        self._connect_seconds = self._url.connect_timeout_seconds or connect_timeout_seconds
        self._statement_timeout_ms = statement_timeout_ms
        self._lock_timeout_ms = lock_timeout_ms
        self._link = Link(silence_seconds)
        self.connection_lost = asyncio.Event()
        """Set whenever a connection ends, so that the watch checks at once whether the database is still there."""
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=self._connect_seconds,
            # A firewall drops idle connections, and neither end notices.
            pool_recycle=300,
            pool_use_lifo=True,
            hide_parameters=True,
            # Whatever the default of the database: every statement must see what others have committed before it.
            isolation_level="READ COMMITTED",
        )
        self._must_renew = False
        event.listen(self._engine.sync_engine, "checkout", self._renew_if_needed)

    @property
    def statement_seconds(self) -> float:
        """The time limit of a statement, where a transaction sets no other."""
        return self._statement_timeout_ms / 1000

    @property
    def link_age_seconds(self) -> float:
        """How long the database has been answering without a break; 0: it does not answer, or was not asked."""
        return self._link.age_seconds

    @property
    def outage(self) -> Outage | None:
        """None: no outage is known. `ping` finds one, any transaction that succeeds ends it."""
        return self._link.outage

    @property
    def times_back(self) -> int:
        """How often the database answered again after it had not."""
        return self._link.times_back

    @asynccontextmanager
    async def transaction(
        self,
        *,
        statement_timeout_ms: int | None = None,
        lock_timeout_ms: int | None = None,
        search_path: str | None = None,
    ) -> AsyncIterator[Transaction]:
        """Commits at the end of the block, rolls back when an error leaves it.

        The whole block has one deadline, a little above the time for a connection and one longest statement.
        """
        timeout_ms = statement_timeout_ms or self._statement_timeout_ms
        settings = self._settings(timeout_ms, lock_timeout_ms, search_path)
        shared = _shared.get()
        if shared is not None and (
            shared.database is not self or settings != self._settings(self._statement_timeout_ms)
        ):
            shared = None
        seconds = self._connect_seconds + timeout_ms / 1000 + MARGIN_SECONDS
        deadline = asyncio.timeout(seconds)
        doing = f"connect to {self._url.address}"
        tx: Transaction | None = None
        try:
            async with bounded(seconds, deadline):
                if shared is not None and shared.is_usable:
                    doing = "query"
                    async with _savepoint(shared):
                        tx = Transaction(shared.connection, self.own_schema)
                        yield tx
                    return
                connection = await self._engine.connect()
                async with _ended(connection):
                    doing = "begin"
                    await connection.execute(_SETTINGS, settings)
                    doing = "query"
                    tx = Transaction(connection, self.own_schema)
                    yield tx
                    doing = "commit"
                    await connection.commit()
        except TimeoutError as error:
            if not deadline.expired():
                raise
            if tx is not None and self._link.is_answering(
                tx.answered_at, statement_seconds=timeout_ms / 1000 + MARGIN_SECONDS
            ):
                # The database answers: what this transaction asks for is too much.
                what = f"{doing}: the transaction took longer than {seconds:g} s in all, connection given up"
                raise TooSlow(what) from error
            self._broke()
            raise Unreachable("database", f"{doing}: no answer in time") from error
        except DRIVER_ERRORS as error:
            fault = commit_fault_of(error) if doing == "commit" else fault_of(error, doing)
            self._note(fault)
            raise fault.error from error
        self._link.record_answer()

    @asynccontextmanager
    async def one_transaction(self) -> AsyncIterator[None]:
        """Transactions that this task begins within the block are savepoints of one, which commits at the end.

        One that fails fails alone. After one that was cut short, or lost the connection, the others have their own
        transactions again, and the end raises `Unavailable`: what the savepoints before it wrote is not committed.
        """
        connection = await self._connection_or_none()
        if connection is None:
            # The transactions of the block find out and report why.
            yield
            return
        shared = _Shared(database=self, connection=connection)
        token = _shared.set(shared)
        try:
            async with _ended(connection):
                yield
                await self._commit(shared)
        finally:
            # A task that outlives the block must not use the connection, which is another one's by then.
            shared.is_usable = False
            _shared.reset(token)

    async def _connection_or_none(self) -> AsyncConnection | None:
        try:
            async with bounded(self._connect_seconds + MARGIN_SECONDS):
                connection = await self._engine.connect()
                try:
                    await connection.execute(_SETTINGS, self._settings(self._statement_timeout_ms))
                except BaseException:
                    await connection.invalidate()
                    await connection.close()
                    raise
                return connection
        except (TimeoutError, *DRIVER_ERRORS):
            return None

    async def _commit(self, shared: "_Shared") -> None:
        if not shared.is_usable:
            await shared.connection.invalidate()
            raise Unavailable("database", "a query was cut short before the commit")
        shared.is_usable = False
        try:
            async with bounded(self._statement_timeout_ms / 1000 + MARGIN_SECONDS):
                await shared.connection.commit()
        except TimeoutError as error:
            await shared.connection.invalidate()
            self._broke()
            raise Unreachable("database", "commit: no answer in time") from error
        except DRIVER_ERRORS as error:
            fault = commit_fault_of(error)
            self._note(fault)
            raise fault.error from error

    def _settings(
        self, timeout_ms: int, lock_timeout_ms: int | None = None, search_path: str | None = None
    ) -> dict[str, str]:
        return {
            "search_path": search_path or self._search_path(),
            "lock_timeout": f"{self._lock_timeout_ms if lock_timeout_ms is None else lock_timeout_ms}ms",
            "statement_timeout": f"{timeout_ms}ms",
            "idle_timeout": f"{timeout_ms}ms",
        }

    async def run_outside_transaction(self, sql: str) -> None:
        """Run one statement that PostgreSQL refuses in a transaction, however long it takes. `own.` as elsewhere."""
        try:
            connection = await self._connect()
            try:
                await connection.execute(in_own_schema(sql, self.own_schema))
            finally:
                await connection.close(timeout=MARGIN_SECONDS)
        except DRIVER_ERRORS as error:
            raise fault_of(error, "statement outside a transaction").error from error

    def answered_within(self, seconds: float) -> bool:
        """A transaction of any service succeeded within this time, and no connection was lost since."""
        return self._link.answered_within(seconds)

    async def ping(self) -> None:
        """Check that the database answers; raises `Unavailable` if it does not."""
        started = monotonic_seconds()
        try:
            await self._select()
        except Unavailable as error:
            if monotonic_seconds() - started > PING_SECONDS:
                self._link.confirm_outage(error)
                raise
            # A connection that was in the pool may be dead while the database is there. A new one decides.
            await self._ping_again()

    async def _ping_again(self) -> None:
        try:
            await self._select()
        except Unavailable as error:
            self._link.confirm_outage(error)
            raise

    async def _select(self) -> None:
        async with self.transaction(statement_timeout_ms=int(PING_SECONDS * 1000)) as tx:
            await tx.run("SELECT 1")

    async def dispose(self) -> None:
        """Close all connections; those that will not close in time are left to the end of the process."""
        try:
            async with asyncio.timeout(MARGIN_SECONDS):
                await self._engine.dispose()
        except (TimeoutError, *DRIVER_ERRORS):
            await self._engine.dispose(close=False)

    def renew_connections(self) -> None:
        """Use no connection of now again. Call it when the server turns out to be a standby.

        A failover may leave connections to the old server open. New connections may reach the new server.
        """
        self._must_renew = True

    def _renew_if_needed(self, *_: object) -> None:
        if self._must_renew:
            self._must_renew = False
            raise InvalidatePoolError

    def _note(self, fault: Fault) -> None:
        if fault.is_link_down:
            self._broke()
        if fault.is_read_only:
            self.renew_connections()

    def _broke(self) -> None:
        self._link.record_break()
        self.connection_lost.set()

    def _on_termination(self, _: asyncpg.Connection) -> None:
        self._link.suspect()
        self.connection_lost.set()

    def _search_path(self) -> str:
        # As the host's own services do it: its test schemas get no public.
        path = quoted(self.host_schema)
        return path if self.host_schema.startswith("test_") else f"{path}, public"

    async def _connect(self) -> Any:
        try:
            connection = await asyncpg.connect(
                self._url.dsn,
                timeout=self._connect_seconds,
                connection_class=DriverConnection,
                # Nameless statements, parsed anew with each execution: a named one would be missing on the
                # next server connection behind a pooler. SQLAlchemy's cache keeps only their descriptions.
                statement_cache_size=0,
                server_settings={"application_name": self._url.application_name},
            )
        except TimeoutError as error:
            raise ConnectionError(f"no connection within {self._connect_seconds:g} s") from error
        except asyncpg.ClientConfigurationError:
            raise
        except ValueError as error:
            # From reading the URL: the text may quote a password with an unescaped character.
            raise ConnectionError(f"the database URL cannot be used ({type(error).__name__})") from None
        keep_alive(connection, self._url.keepalive)
        await use_total_codec(connection)
        connection.add_termination_listener(self._on_termination)
        return connection


@dataclass(slots=True)
class _Shared:
    """The connection of `one_transaction`."""

    database: Database
    connection: AsyncConnection
    is_usable: bool = True


_shared: ContextVar[_Shared | None] = ContextVar("shared connection", default=None)


@asynccontextmanager
async def _savepoint(shared: _Shared) -> AsyncIterator[None]:
    # Until it has ended in order: after a call that was cut short the state of the connection is unknown.
    shared.is_usable = False
    savepoint = await shared.connection.begin_nested()
    try:
        yield
    except Exception:
        # A lost connection refuses all that follows with an error that names no loss.
        if not shared.connection.invalidated:
            await savepoint.rollback()
            shared.is_usable = True
        raise
    await savepoint.commit()
    shared.is_usable = True


@asynccontextmanager
async def _ended(connection: AsyncConnection) -> AsyncIterator[None]:
    """Give the connection back to the pool after its transaction, or close it if its state is unknown."""
    try:
        yield
    except Exception:
        await _rolled_back(connection)
        raise
    except BaseException:
        # Cancelled, perhaps in mid-call: a rollback would wait behind that call on a link that may be half-open.
        await connection.invalidate()
        raise
    finally:
        await connection.close()


async def _rolled_back(connection: AsyncConnection) -> None:
    try:
        async with asyncio.timeout(MARGIN_SECONDS):
            await connection.rollback()
    except (TimeoutError, *DRIVER_ERRORS):
        await connection.invalidate()
    except BaseException:
        await connection.invalidate()
        raise
