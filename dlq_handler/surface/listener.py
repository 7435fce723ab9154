"""One HTTP listener in this process: bound at once, served until told to stop.

Promises: a port that is taken ends the start with `ListenerRefused`, which names the setting; whoever still waits for
an answer at the end gets a second, no more, so that no request holds up SIGTERM.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

CLOSING_SECONDS = 1


class ListenerRefused(Exception):
    """The address cannot be listened on: taken, not of this machine, or not allowed."""

    def __init__(self, *, host: str, port: int, setting: str, why: str) -> None:
        super().__init__(f"{setting}: cannot listen on {host}:{port}: {why}")
        self.host, self.port, self.setting, self.why = host, port, setting, why


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process has one owner of SIGTERM, and it is not the web server: it would stop the loop under the batch.
        yield


class Listener:
    """`app` is asked for when serving begins, with the event that will end it: an answer that goes on and on must know
    of it, and parts that an application needs may be made after the port is taken.
    """

    def __init__(
        self, *, host: str, port: int, setting: str, app: Callable[[asyncio.Event], ASGIApp]
    ) -> None:
        self._app, self._setting = app, setting
        # Bound here, not in the server: a taken port must end the start with a clear error, not a logged one.
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # With its protocol named: asyncio sends without delay only where it is, and an answer in two parts, head
            # and body, would wait 40 ms for the acknowledgement of its head.
            self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        except OSError as error:
            raise ListenerRefused(host=host, port=port, setting=setting, why=str(error)) from error
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise ListenerRefused(host=host, port=port, setting=setting, why=str(error)) from error

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Give the port back without having served."""
        self._socket.close()

    async def run(self, stop: asyncio.Event) -> None:
        server = _Server(
            uvicorn.Config(
                self._app(stop),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=CLOSING_SECONDS,
            )
        )
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[self._socket]), name=self._setting)
            await stop.wait()
            server.should_exit = True
            await serving
