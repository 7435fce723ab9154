"""The bad network does what it says: only then do the tests behind it prove anything."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
async def echo_url() -> AsyncIterator[str]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1000):
            writer.write(chunk)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield f"amqp://user:word@127.0.0.1:{port}/some%2Fhost"
    server.close()


async def connect(proxy: TcpProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_the_url_keeps_credentials_and_path(echo_url: str) -> None:
    async with TcpProxy.to(echo_url) as proxy:
        assert proxy.url == f"amqp://user:word@127.0.0.1:{proxy.port}/some%2Fhost"


async def test_bytes_pass_both_ways_and_the_end_is_passed_on(echo_url: str) -> None:
    async with TcpProxy.to(echo_url) as proxy:
        reader, writer = await connect(proxy)
        writer.write(b"hello")
        writer.write_eof()
        async with asyncio.timeout(5):
            assert await reader.read() == b"hello"
        writer.close()


async def test_a_frozen_link_stays_open_and_silent_until_healed(echo_url: str) -> None:
    async with TcpProxy.to(echo_url) as proxy:
        reader, writer = await connect(proxy)
        proxy.freeze()
        writer.write(b"held")
        answer = asyncio.ensure_future(reader.readexactly(4))
        done, _ = await asyncio.wait([answer], timeout=0.2)
        assert not done
        await proxy.heal()
        async with asyncio.timeout(5):
            assert await answer == b"held"
        writer.close()


async def test_a_cut_resets_links_and_lets_new_ones_through(echo_url: str) -> None:
    async with TcpProxy.to(echo_url) as proxy:
        reader, writer = await connect(proxy)
        writer.write(b"once")
        await reader.readexactly(4)
        proxy.cut()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        reader, writer = await connect(proxy)
        writer.write(b"again")
        async with asyncio.timeout(5):
            assert await reader.readexactly(5) == b"again"
        writer.close()


async def test_refused_until_healed_on_the_same_port(echo_url: str) -> None:
    async with TcpProxy.to(echo_url) as proxy:
        port = proxy.port
        await proxy.refuse()
        with pytest.raises(OSError, match=r"refused|failed"):
            await connect(proxy)
        await proxy.heal()
        assert proxy.port == port
        reader, writer = await connect(proxy)
        writer.write(b"back")
        async with asyncio.timeout(5):
            assert await reader.readexactly(4) == b"back"
        writer.close()


async def test_latency_delays_what_passes(echo_url: str) -> None:
    async with TcpProxy.to(echo_url) as proxy:
        proxy.latency_seconds = 0.2
        reader, writer = await connect(proxy)
        began = asyncio.get_running_loop().time()
        writer.write(b"slow")
        await reader.readexactly(4)
        # There and back again. Only a lower bound: a busy machine makes it longer, never shorter.
        assert asyncio.get_running_loop().time() - began >= 0.4
        writer.close()
