"""HTTP clients that mean harm: each opens connections to 127.0.0.1 and holds them until the block ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

CHUNKED = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
ONE_BYTE_CHUNK = b"1\r\nx\r\n"
# What a send buffer takes at once.
CHUNKS_PER_WRITE = 2_000


@asynccontextmanager
async def connections(port: int, count: int, opening: bytes = b"") -> AsyncIterator[None]:
    """So many connections that send `opening` and then nothing more."""
    writers = []
    try:
        for _ in range(count):
            # A refused connection is an answer too.
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
                if opening:
                    writer.write(opening)
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def one_byte_chunks(port: int, path: str, *, clients: int, chunks: int) -> AsyncIterator[None]:
    """Requests whose bodies come in chunks of one byte, sent while the block runs."""

    async def attack() -> None:
        # The server may close at any time.
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(CHUNKED.format(path=path).encode())
                for _ in range(chunks // CHUNKS_PER_WRITE):
                    writer.write(ONE_BYTE_CHUNK * CHUNKS_PER_WRITE)
                    await writer.drain()
                await asyncio.Event().wait()
            finally:
                writer.transport.abort()

    attackers = [asyncio.create_task(attack()) for _ in range(clients)]
    try:
        yield
    finally:
        for one in attackers:
            one.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)


@asynccontextmanager
async def requests(port: int, paths: Sequence[str]) -> AsyncIterator[None]:
    """One whole request each, whose answer is never read."""

    def whole() -> Iterator[bytes]:
        for path in paths:
            yield f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()

    async with contextlib.AsyncExitStack() as stack:
        for request in whole():
            await stack.enter_async_context(connections(port, 1, request))
        yield
