"""A RabbitMQ that tests and the demo may use, wherever it came from. A vhost each keeps its users apart.

Bound to no event loop and holds no connection: one object serves every test of a session. Vhosts go through
the management API, because rabbitmqctl costs seconds of CPU a call.
"""

import asyncio
import contextlib
from typing import Self
from urllib.parse import quote, unquote, urlsplit

import httpx

from sandbox.servers.errors import NoServer, NotPrivate

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"
REQUEST_SECONDS = 30


class RabbitMQ:
    def __init__(self, *, amqp_url: str, management_url: str, origin: str) -> None:
        parts = urlsplit(amqp_url)
        self.amqp_url = amqp_url
        self.management_url = management_url.rstrip("/")
        self.origin = origin
        self.scheme = parts.scheme
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (5671 if parts.scheme == "amqps" else 5672)
        self.user = unquote(parts.username or "guest")
        self.password = unquote(parts.password or "guest")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def url_of(self, vhost: str) -> str:
        credentials = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return f"{self.scheme}://{credentials}@{self.host}:{self.port}/{quote(vhost, safe='')}"

    async def await_ready(self, timeout: float = 60) -> None:
        """Until it greets a client and its management API answers. NoServer when it does not in time."""
        complaint: Exception | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        await self._greet()
                        await self.ask("GET", "overview")
                    except (OSError, httpx.HTTPError) as refused:
                        complaint = refused
                        await asyncio.sleep(0.1)
                    else:
                        return
        except TimeoutError:
            raise NoServer(f"RabbitMQ at {self.host}:{self.port} is not ready: {complaint!r}") from complaint

    async def create_vhost(self, name: str) -> str:
        """Its AMQP URL."""
        await self.ask("PUT", f"vhosts/{quote(name, safe='')}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        await self.ask("PUT", f"permissions/{quote(name, safe='')}/{quote(self.user, safe='')}", everything)
        return self.url_of(name)

    async def delete_vhost(self, name: str) -> None:
        await self.ask("DELETE", f"vhosts/{quote(name, safe='')}")

    async def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """One request to the management API (`path` behind /api/). httpx.HTTPError when it is refused."""
        async with httpx.AsyncClient(
            auth=(self.user, self.password),
            timeout=REQUEST_SECONDS,
            trust_env=False,  # a proxy of the environment must not come between us and a local server
            verify=self.management_url.startswith("https:"),
        ) as client:
            response = await client.request(method, f"{self.management_url}/api/{path}", json=body)
            return response.raise_for_status()

    async def set_memory_alarm(self, on: bool) -> None:  # noqa: ARG002 (private brokers do it)
        """Block (or release) every publisher, as a broker out of memory does."""
        raise NotPrivate("RabbitMQ", self.origin)

    async def start(self) -> None:
        """Again, on the same ports and data."""
        raise NotPrivate("RabbitMQ", self.origin)

    async def stop(self) -> None:
        raise NotPrivate("RabbitMQ", self.origin)

    async def kill(self) -> None:
        """As by kill -9: nothing is flushed, no connection is closed in order."""
        raise NotPrivate("RabbitMQ", self.origin)

    async def close(self) -> None:
        """Give it back: what was started for us ends, what was there stays."""

    async def _greet(self) -> None:
        if self.scheme == "amqps":
            return  # the greeting is behind TLS; the management API answers for it
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(self.host, self.port)
            try:
                writer.write(PROTOCOL_HEADER)
                if await reader.read(1) != METHOD_FRAME:
                    raise ConnectionError("no AMQP 0-9-1 greeting")
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
