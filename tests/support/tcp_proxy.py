"""A TCP proxy on 127.0.0.1 that can be a bad network: slow, cut, half-open, refusing. For broker and database
links.

`async with TcpProxy.to(url) as proxy:` then connect to `proxy.url`. Faults take effect at once, on links that
are there and on new ones, until `heal()`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES = 65_536
DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671, "postgresql": 5432, "http": 80}


class TcpProxy:
    def __init__(self, host: str, port: int) -> None:
        self.latency_seconds = 0.0
        self.links = 0
        self.accepted = 0
        self._target = (host, port)
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self._url = ""

    @classmethod
    @asynccontextmanager
    async def to(cls, url: str) -> AsyncIterator[Self]:
        """In front of the server of `url`; `proxy.url` is the same URL by way of the proxy."""
        parts = urlsplit(url)
        proxy = cls(parts.hostname or "127.0.0.1", parts.port or DEFAULT_PORTS[parts.scheme])
        await proxy._listen()
        credentials, at, _ = parts.netloc.rpartition("@")
        proxy._url = urlunsplit(parts._replace(netloc=f"{credentials}{at}127.0.0.1:{proxy.port}"))
        try:
            yield proxy
        finally:
            await proxy._close()

    @property
    def url(self) -> str:
        return self._url

    def cut(self) -> None:
        """Reset every link, as a server that dies or a network that breaks. New ones are let through."""
        for writer in list(self._writers):
            writer.transport.abort()

    def freeze(self) -> None:
        """Half-open: links stay established, new ones are accepted, and not a byte passes any more."""
        self._open.clear()

    async def refuse(self) -> None:
        """Cut all links and refuse new ones, as a server that is down."""
        self._refusing = True
        if self._server:
            self._server.close()
        self.cut()

    async def heal(self) -> None:
        """Let everything pass again, at full speed; what a freeze held back arrives now."""
        self.latency_seconds = 0.0
        self._open.set()
        if self._refusing:
            self._refusing = False
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.wait(self._tasks) if self._tasks else None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: of one that it made itself, asyncio reports the cancellation as an error, with a traceback.
        task = asyncio.create_task(self._link(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        self.accepted += 1

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.links += 1
        onward_writer: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            onward_reader, onward_writer = await asyncio.open_connection(*self._target)
            self._writers.add(onward_writer)
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._pass_on(reader, onward_writer))
                both_ways.create_task(self._pass_on(onward_reader, writer))
        except* OSError:
            pass  # the other end has closed: this link ends, as it would without a proxy
        finally:
            self.links -= 1
            for end in (writer, onward_writer):
                if end:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if self.latency_seconds:
                await asyncio.sleep(self.latency_seconds)
            await self._open.wait()
            writer.write(chunk)
            await writer.drain()
        # One side has said all it had to say; the other may still be answering.
        with contextlib.suppress(OSError):
            writer.write_eof()
