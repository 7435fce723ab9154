"""One HTTP listener in this process: bound at once, served until it is stopped.

Promises: a port that is taken ends the start with `ListenerRefused`, which names the setting. Requests that are open at
the end get one more second, so that none delays SIGTERM.
"""

import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from dlq_handler.tasks import task_group
from dlq_handler.web.connections import BACKLOG, BoundedProtocol, Connections, Limits

CLOSING_SECONDS = 1
USUAL_LIMITS = Limits(connections=256, body_bytes=65_536)


class ListenerRefused(Exception):
    """The address cannot be listened on: taken, not of this machine, or not allowed."""

    def __init__(self, *, host: str, port: int, setting: str, explanation: str) -> None:
        super().__init__(f"{setting}: cannot listen on {host}:{port}: {explanation}")
        self.host, self.port, self.setting, self.explanation = host, port, setting, explanation


class _Server(uvicorn.Server):
    """uvicorn's server without its way to accept connections, which has no bound."""

    def __init__(self, config: uvicorn.Config, *, name: str, limits: Limits) -> None:
        super().__init__(config)
        self._name, self._limits = name, limits
        self._connections: Connections | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process has one owner of SIGTERM, and it is not the web server: it would stop the loop under the batch.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets  # noqa: S101  the listener's own
        self.servers = []
        self._connections = Connections(
            sockets[0],
            name=self._name,
            limits=self._limits,
            protocol=partial(
                BoundedProtocol,
                limits=self._limits,
                config=self.config,
                server_state=self.server_state,
                app_state={},
            ),
        )
        self._connections.start()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._connections is not None:
            self._connections.stop()
        await super().shutdown(sockets)


class Listener:
    def __init__(
        self,
        *,
        host: str,
        port: int,
        setting: str,
        limits: Limits = USUAL_LIMITS,
    ) -> None:
        self._setting, self._limits = setting, limits
        # Bound here, not in the server: a taken port must end the start with a clear error, not a logged one.
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # With its protocol named: asyncio sends without delay only where it is, and an answer in two parts, head
            # and body, would wait 40 ms for the acknowledgement of its head.
            self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        except OSError as error:
            raise ListenerRefused(host=host, port=port, setting=setting, explanation=str(error)) from error
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(address)
            # From now on clients wait until serving begins.
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            explanation = str(error)
            if error.errno == errno.EADDRINUSE:
                explanation += f"; another replica or program uses this port: stop it, or set {setting}.port"
            raise ListenerRefused(host=host, port=port, setting=setting, explanation=explanation) from error

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Give the port back without having served."""
        self._socket.close()

    async def run(self, stop: asyncio.Event, app: ASGIApp) -> None:
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                # An upgraded connection would leave the bounds of `Connections`.
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=CLOSING_SECONDS,
            ),
            name=self._setting,
            limits=self._limits,
        )
        async with task_group() as group:
            serving = group.create_task(server.serve(sockets=[self._socket]), name=self._setting)
            await stop.wait()
            server.should_exit = True
            await serving
