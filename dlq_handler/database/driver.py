"""The driver asyncpg: how its connections are closed and kept alive, and what its errors mean.

The only module that knows SQLSTATEs. The kind of an error decides what happens to a dead letter. A rejected row is the
fault of that dead letter. Every other error is a fault of the replica or the server, and no dead letter is acknowledged
because of it. Texts hold the server's message, never a parameter, a DETAIL or a URL.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dlq_handler.errors import Contended, GrantsMissing, RowRefused, TooSlow, Unavailable, Unreachable
from dlq_handler.text import storable


class DriverConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    async def close(self, *, timeout: float | None = None) -> None:
        """SQLAlchemy gives a time limit to connections that it does not trust any more: those end at once.

        A regular close waits for that limit if the server does not answer, and the services close one after the other.
        That is too long after a SIGTERM.
        """
        if timeout is None:
            await super().close()
        else:
            self.terminate()


def keep_alive(connection: Any, wanted: Mapping[str, int]) -> None:
    """Apply libpq's keepalive parameters; 0 means the system's own value, as in libpq."""
    raw: Any = connection._transport.get_extra_info("socket")  # noqa: SLF001  # the driver has no public way to it
    if not wanted or raw is None or raw.family == socket.AF_UNIX:
        return
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(wanted.get("keepalives", 1) != 0))
    for name, option in (
        ("keepalives_idle", "TCP_KEEPIDLE"),
        ("keepalives_interval", "TCP_KEEPINTVL"),
        ("keepalives_count", "TCP_KEEPCNT"),
        ("tcp_user_timeout", "TCP_USER_TIMEOUT"),
    ):
        # Not every system has every option; libpq ignores it there too.
        if wanted.get(name) and hasattr(socket, option):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), wanted[name])


DRIVER_ERRORS = (
    DBAPIError,
    PoolTimeout,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)

# 44: a check of the host's view; 54: one row over a limit of the server.
_ROW_CLASSES = ("22", "23", "44", "54", "P0")
# What PostgreSQL itself uses beyond the standard's range. Any other class comes from a trigger of the host
# that rejects this row, like P0.
_SERVER_CLASSES = ("53", "55", "57", "58", "XX")
_CONTENDED = ("40P01", "40001", "55P03")
_NO_GRANT = "42501"
_NO_TABLE = "42P01"
# A wrong user or password, a connection that pg_hba.conf does not allow, a database that does not exist.
_WRONG_URL = ("28P01", "28000", "3D000")
# statement_timeout, or an administrator who canceled the statement: slow, but an answer.
_CANCELED = "57014"
# 25P03: the server ended an idle transaction with its connection.
_CONNECTION_CLASSES = ("08", "53", "57", "58")
_ENDED_FOR_IDLENESS = "25P03"
# The server answers, but accepts no heartbeats: when it accepts writes again, all heartbeats are old.
_READ_ONLY = "25006"


_ALL_BUSY = (
    "all connections wait for an answer; check whether PostgreSQL hangs, is overloaded or has locked tables"
)

# A connection that the server or the network ended. In the middle of a call the driver reports its own inner state.
_LOST = (
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A translated error, and the state of the connection after it."""

    error: Exception
    is_link_down: bool
    is_read_only: bool = False
    """True: the server at the other end takes no changes. After a failover it is the wrong one."""


def fault_of(error: BaseException, doing: str) -> Fault:
    cause = _driver_error(error)
    if isinstance(cause, asyncpg.DataError) and cause.message is None:
        # The client's own encoder: its text quotes the value, so it is not repeated.
        return Fault(RowRefused("22000", "a value cannot be written in PostgreSQL's format"), False)
    sqlstate = getattr(cause, "sqlstate", None)
    if not isinstance(sqlstate, str):
        if isinstance(cause, PoolTimeout):
            # Either the replica or the server is slow: that does not prove an outage.
            return Fault(Unavailable("database", f"{doing}: {_ALL_BUSY}"), False)
        return _unreachable(doing, cause)
    what = f"{doing}: {type(cause).__name__}: {_message(cause)}"
    if sqlstate in _CONTENDED:
        return Fault(Contended(f"{what} ({sqlstate})"), False)
    if sqlstate[:2] in _ROW_CLASSES or _is_made_up(sqlstate):
        return Fault(RowRefused(sqlstate, _message(cause)), False)
    if sqlstate == _NO_GRANT:
        return Fault(GrantsMissing(what), False)
    if sqlstate == _CANCELED:
        return Fault(TooSlow(f"{what} ({sqlstate})"), False)
    if sqlstate == _NO_TABLE:
        what += "; `dlq-handler migrate` creates its own tables, Attune's must be in database.url and database.schema"
    if sqlstate in _WRONG_URL:
        what += "; correct user, password and database name in database.url"
    if sqlstate[:2] in _CONNECTION_CLASSES:
        return _unreachable(doing, cause)
    is_link_down = sqlstate in (_ENDED_FOR_IDLENESS, _READ_ONLY)
    return Fault(
        Unavailable("database", f"{what} ({sqlstate})"), is_link_down, is_read_only=sqlstate == _READ_ONLY
    )


def _unreachable(doing: str, cause: BaseException) -> Fault:
    """Every failure to connect is reported as "database: unreachable"."""
    return Fault(Unreachable("database", f"{doing}: {_why_unreachable(cause)}"), True)


def _is_made_up(sqlstate: str) -> bool:
    """The standard leaves classes that begin with 5 to 9 or I to Z to the implementation and its users."""
    return (sqlstate[0] in "56789" or sqlstate[0] >= "I") and sqlstate[:2] not in _SERVER_CLASSES


def commit_fault_of(error: BaseException) -> Fault:
    """An error at COMMIT is never the fault of a dead letter: the transaction may have been committed."""
    fault = fault_of(error, "commit")
    if isinstance(fault.error, Unavailable):
        return fault
    return Fault(Unavailable("database", f"commit: {fault.error}"), fault.is_link_down)


def _driver_error(error: BaseException) -> BaseException:
    """SQLAlchemy wraps the adapter's error, which wraps asyncpg's."""
    while isinstance(error, DBAPIError) or type(error).__module__.startswith("sqlalchemy.dialects"):
        inner = getattr(error, "orig", None) or error.__cause__
        if inner is None:
            break
        error = inner
    return error


def _why_unreachable(error: BaseException) -> str:
    """Leaves out the driver's message where it describes the driver and not the server."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    is_lost = isinstance(error, _LOST) and not isinstance(error, asyncpg.ClientConfigurationError)
    return "connection lost" if is_lost else _message(error) or type(error).__name__


def _message(error: BaseException) -> str:
    # The lines after the first are DETAIL and HINT, and DETAIL quotes the row.
    return storable(str(error).partition("\n")[0])[:300]
