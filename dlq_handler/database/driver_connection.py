"""A connection of the driver: how it is closed, and its TCP keepalive."""

import socket
from collections.abc import Mapping
from typing import Any

import asyncpg


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
