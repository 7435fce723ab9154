"""A listener by itself, on a real socket: how many connections it holds, and for how long."""

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from dlq_handler.web.connections import Limits
from dlq_handler.web.listeners import Listener, most_connections

WITHIN_SECONDS = 30
MOST = 3
QUICK = Limits(connections=MOST, body_bytes=100, header_seconds=0.1, body_seconds=0.1, read_seconds=0.1)
PATIENT = Limits(connections=MOST, body_bytes=100, header_seconds=600, body_seconds=600, read_seconds=600)

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@dataclass(slots=True)
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self) -> int:
        async with asyncio.timeout(WITHIN_SECONDS):
            return int((await self.reader.readuntil(b"\r\n")).split()[1])

    async def is_closed(self) -> bool:
        """Waits for it."""
        async with asyncio.timeout(WITHIN_SECONDS):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


@dataclass(slots=True)
class Served:
    port: int
    let_answer: asyncio.Event = field(default_factory=asyncio.Event)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    clients: list[Client] = field(default_factory=list)

    async def client(self, opening: bytes = b"") -> Client:
        one = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(one)
        one.writer.write(opening)
        await one.writer.drain()
        return one


@asynccontextmanager
async def serving(limits: Limits) -> AsyncIterator[Served]:
    """/slow answers when it may, /huge with more than any buffer takes, any other path at once."""
    listener = Listener(host="127.0.0.1", port=0, setting="test", limits=limits)
    served, stop = Served(port=listener.port), asyncio.Event()

    async def huge() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 65_536

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = PlainTextResponse("here")
        await request.body()
        if scope["path"] == "/slow":
            served.is_asked.set()
            await served.let_answer.wait()
        elif scope["path"] == "/huge":
            answer = StreamingResponse(huge())
        await answer(scope, receive, send)

    async with asyncio.TaskGroup() as group:
        group.create_task(listener.run(stop, app))
        try:
            yield served
        finally:
            served.let_answer.set()
            for client in served.clients:
                client.writer.transport.abort()
            stop.set()


async def test_a_new_connection_takes_the_place_of_the_oldest_idle_one() -> None:
    async with serving(PATIENT) as served:
        idle = [await served.client() for _ in range(MOST)]
        for number in range(2 * MOST):
            client = await served.client(GET)
            assert await client.status() == 200
            if number < MOST:
                assert await idle[number].is_closed()


async def test_a_request_that_is_being_answered_keeps_its_place() -> None:
    async with serving(PATIENT) as served:
        slow = [await served.client(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")]
        await served.is_asked.wait()
        others = [await served.client() for _ in range(10 * MOST)]
        assert await others[0].is_closed()
        served.let_answer.set()
        assert await slow[0].status() == 200


async def test_a_listener_full_of_answers_closes_what_is_new() -> None:
    async with serving(PATIENT) as served:
        for _ in range(MOST):
            served.is_asked.clear()
            await served.client(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
            await served.is_asked.wait()
        assert await (await served.client(GET)).is_closed()


@pytest.mark.parametrize(
    "opening",
    [
        b"",
        GET[:20],
        POST + b"Content-Length: 50\r\n\r\nhalf",
        b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["nothing", "half headers", "half a body", "an answer unread"],
)
async def test_a_client_that_stands_still_is_closed(opening: bytes) -> None:
    async with serving(QUICK) as served:
        client = await served.client(opening)
        if b"huge" in opening:
            # Its buffer fills, and then nothing more is read.
            await client.status()
            await asyncio.wait_for(closed_by_server(client), WITHIN_SECONDS)
        else:
            assert await client.is_closed()


async def closed_by_server(client: Client) -> None:
    """Without reading: the connection is reset under what is written."""
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a selector's transport has it
    while not client.writer.transport.is_closing():
        client.writer.write(b"x")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000, 411),
        (b"Content-Length: 101\r\n\r\n", 413),
        (b"Content-Length: 101\r\nExpect: 100-continue\r\n\r\n", 413),
        (b"Content-Length: 99999999999999999999\r\n\r\n", 413),
        (b"Content-Length: x\r\n\r\n", 400),
    ],
)
async def test_a_body_is_refused_by_its_headers(headers: bytes, status: int) -> None:
    async with serving(PATIENT) as served:
        client = await served.client()
        client.writer.write(POST + headers)
        assert await client.status() == status


async def test_long_headers_may_arrive_in_parts() -> None:
    """A link with filters, a proxy's cookies: 40 KiB, of which the listener has seen only a part at first."""
    async with serving(PATIENT) as served:
        client = await served.client(GET[:-2] + b"Cookie: " + b"x" * 40_000)
        # The next connection is served after the first part was read.
        assert await (await served.client(GET)).status() == 200
        client.writer.write(b"\r\n\r\n")
        assert await client.status() == 200


async def test_one_connection_serves_several_requests() -> None:
    async with serving(PATIENT) as served:
        client = await served.client(GET + POST + b"Content-Length: 4\r\n\r\nbody" + GET)
        async with asyncio.timeout(WITHIN_SECONDS):
            for _ in range(3):
                await client.reader.readuntil(b"\r\n\r\nhere")


@pytest.mark.parametrize(
    ("descriptors", "most"), [(1024, 237), (256, 45), (64, 8), (1_048_576, 256), (-1, 256)]
)
def test_connections_leave_descriptors_for_the_servers(
    descriptors: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert most_connections(pooled=11) == most
